SELECT pg_catalog.set_config('search_path', '', false);
CREATE SCHEMA invoicing_journal_golden_debd6cd7e407;
CREATE TABLE invoicing_journal_golden_debd6cd7e407.commons (
    number bigint NOT NULL,
    text text NOT NULL
);
CREATE TABLE invoicing_journal_golden_debd6cd7e407.entries (
    seq bigint NOT NULL,
    place bigint NOT NULL,
    key text NOT NULL,
    lane bigint NOT NULL,
    thing text,
    digest text NOT NULL,
    operation text NOT NULL,
    state smallint NOT NULL,
    common bigint,
    intent text,
    verdict text,
    outcome text,
    claim text,
    done_at bigint,
    added_at bigint DEFAULT floor((EXTRACT(epoch FROM clock_timestamp()) * (1000)::numeric)) NOT NULL
)
WITH (fillfactor='40');
CREATE SEQUENCE invoicing_journal_golden_debd6cd7e407.entries_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE invoicing_journal_golden_debd6cd7e407.entries_seq_seq OWNED BY invoicing_journal_golden_debd6cd7e407.entries.seq;
CREATE TABLE invoicing_journal_golden_debd6cd7e407.facts (
    name text NOT NULL,
    value text NOT NULL
);
CREATE TABLE invoicing_journal_golden_debd6cd7e407.lanes (
    id bigint NOT NULL,
    owner text,
    credential text DEFAULT ''::text NOT NULL
);
CREATE SEQUENCE invoicing_journal_golden_debd6cd7e407.lanes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE invoicing_journal_golden_debd6cd7e407.lanes_id_seq OWNED BY invoicing_journal_golden_debd6cd7e407.lanes.id;
CREATE TABLE invoicing_journal_golden_debd6cd7e407.members (
    name text NOT NULL,
    seen double precision NOT NULL,
    silence double precision NOT NULL,
    sends smallint NOT NULL,
    hungry smallint DEFAULT 0 NOT NULL,
    begun double precision NOT NULL,
    status text
);
CREATE TABLE invoicing_journal_golden_debd6cd7e407.states (
    thing text NOT NULL,
    place bigint NOT NULL,
    team text,
    state text,
    stamp bigint,
    newest bigint,
    before bigint
);
CREATE TABLE invoicing_journal_golden_debd6cd7e407.unheard (
    seq bigint NOT NULL,
    taker text
);
ALTER TABLE ONLY invoicing_journal_golden_debd6cd7e407.entries ALTER COLUMN seq SET DEFAULT nextval('invoicing_journal_golden_debd6cd7e407.entries_seq_seq'::regclass);
ALTER TABLE ONLY invoicing_journal_golden_debd6cd7e407.lanes ALTER COLUMN id SET DEFAULT nextval('invoicing_journal_golden_debd6cd7e407.lanes_id_seq'::regclass);
INSERT INTO invoicing_journal_golden_debd6cd7e407.commons VALUES (-6214254303912924114, '{"schema":1,"scope":{"base_url":"http://127.0.0.1:33839/v2","team":null,"livemode":null},"policy":{"settle_after_error":0.1,"settle_after_loss":0.2,"deadline":30.0,"resend":"proven","max_resends":1,"wait_when_limited":false,"clock_slack":0.25,"clock_band":1.0,"absence_within":600.0,"reads_lag":5.0,"journey_reader":"journeys.get","journey_reads_show_drafts":false,"tag_creates":false},"timeouts":{"attempt":2.0,"connect":10.0,"call":60.0}}');
INSERT INTO invoicing_journal_golden_debd6cd7e407.commons VALUES (5697834854809688011, '{"schema":1,"scope":{"base_url":"http://127.0.0.1:33839/v2","team":null,"livemode":null},"policy":{"settle_after_error":0.1,"settle_after_loss":0.2,"deadline":30.0,"resend":"proven","max_resends":1,"wait_when_limited":false,"clock_slack":0.25,"clock_band":1.0,"absence_within":600.0,"reads_lag":5.0,"journey_reader":"journeys.get","journey_reads_show_drafts":false,"tag_creates":false},"timeouts":{"attempt":20.0,"connect":10.0,"call":60.0}}');
INSERT INTO invoicing_journal_golden_debd6cd7e407.commons VALUES (-4450164041162632394, '{"schema":1,"scope":{"base_url":"http://127.0.0.1:33839/v2","team":null,"livemode":true},"policy":{"settle_after_error":0.1,"settle_after_loss":0.2,"deadline":30.0,"resend":"proven","max_resends":1,"wait_when_limited":false,"clock_slack":0.25,"clock_band":1.0,"absence_within":600.0,"reads_lag":5.0,"journey_reader":"journeys.get","journey_reads_show_drafts":false,"tag_creates":false},"timeouts":{"attempt":20.0,"connect":10.0,"call":60.0}}');
INSERT INTO invoicing_journal_golden_debd6cd7e407.commons VALUES (744801265501671492, '{"schema":1,"scope":{"base_url":"http://127.0.0.1:33839/v2","team":null,"livemode":null},"policy":{"settle_after_error":0.1,"settle_after_loss":0.2,"deadline":30.0,"resend":"proven","max_resends":1,"wait_when_limited":false,"clock_slack":0.25,"clock_band":1.0,"absence_within":600.0,"reads_lag":5.0,"journey_reader":"journeys.get","journey_reads_show_drafts":false,"tag_creates":false},"timeouts":{"attempt":4.0,"connect":10.0,"call":60.0}}');
INSERT INTO invoicing_journal_golden_debd6cd7e407.entries VALUES (3, 3, 'a10c46175e76deeb to do', 1, '/webhooks/wh_2eeb779de8804d58aabc0788', '{"body.description":"0e4a13f9c9a908ac","operation":"webhooks.update","thing":"75268e04afabd6b8"}', 'webhooks.update', 0, -6214254303912924114, '{"operation":"webhooks.update","credential":"65746c54b372cba54b3d8fff","path":{"id":"wh_2eeb779de8804d58aabc0788"},"body":{"description":"to do"},"nonce":"9a0c94f948c22a7e"}', NULL, NULL, NULL, NULL, 1795773139816);
INSERT INTO invoicing_journal_golden_debd6cd7e407.entries VALUES (1, 1, 'a10c46175e76deeb first', 1, '/webhooks/wh_2eeb779de8804d58aabc0788', '{"body.description":"6a8a45cec8fb6391","operation":"webhooks.update","thing":"75268e04afabd6b8"}', 'webhooks.update', 1, -6214254303912924114, '{"operation":"webhooks.update","credential":"da235bf6171e37d3b7d22944","path":{"id":"wh_2eeb779de8804d58aabc0788"},"body":{"description":"first"},"baseline":{"id":"wh_2eeb779de8804d58aabc0788","url":"https://receiver.example/in","events":["invoice.created"],"status":"active","owner":"usr_1","created_at":1795686737439},"baseline_at":1795773139.821321,"bounds":{"high":1795713242.6686904,"low":1795713242.6643693},"sent":[{"attempt_timeout":2.0,"earliest":1795773139.8177009,"end":null,"latest":1795773139.822022}],"newest":true,"nonce":"336029015eaacbeb"}', NULL, NULL, NULL, NULL, 1795773139809);
INSERT INTO invoicing_journal_golden_debd6cd7e407.entries VALUES (4, 4, 'a10c46175e76deeb done', 2, NULL, '{"body.events":"9b80c1e6c8641d62","body.url":"febc1cdedd3c4f92","operation":"webhooks.create","thing":"77365a3b12ab659a"}', 'webhooks.create', 2, 5697834854809688011, '{"operation":"webhooks.create","credential":"c2a79f59f3edda02564071e1","body":{"url":"https://me.example/in","events":["invoice.created"],"description":"[iv-4gweynrelnii3old]"},"tag":"[iv-4gweynrelnii3old]","bounds":{"high":1795713242.6664956,"low":1795713242.6647968},"sent":[{"attempt_timeout":20.0,"earliest":1795773139.9753675,"end":null,"latest":1795773139.9770663}],"newest":true,"nonce":"4780073141b80f4a"}', 'applied', '{"why":"the service answered so","basis":"answered","thing":"wh_610253226420f4a4f6d4f314","reads":1,"took":0.0456,"waited":0.0,"had":"returned","value":{"id":"wh_610253226420f4a4f6d4f314","url":"https://me.example/in","events":["invoice.created"],"status":"active","description":"[iv-4gweynrelnii3old]","owner":"usr_1","created_at":1795773139983}}', NULL, 1795773139985, 1795773139972);
INSERT INTO invoicing_journal_golden_debd6cd7e407.entries VALUES (5, 5, 'a10c46175e76deeb renamed', 2, '/journeys/jrn_1', '{"body.name":"f71600c00e5a6475","operation":"journeys.update","thing":"df12e6845fec6c00"}', 'journeys.update', 2, 5697834854809688011, '{"operation":"journeys.update","credential":"d15f06fc1cb5f22063ea20f1","path":{"id":"jrn_1"},"body":{"name":"renamed"},"bounds":{"high":1795713242.6664174,"low":1795713242.6647968},"sent":[{"attempt_timeout":20.0,"earliest":1795773139.9851708,"end":null,"latest":1795773139.9867914}],"newest":true,"nonce":"d88531bee86a3624"}', 'applied', '{"why":"the service answered so","basis":"answered","thing":"jrn_1","took":0.0526,"waited":0.0,"value":{"id":"jrn_1","name":"renamed","description":null,"livemode":true,"owner":"usr_1","team":"team_1","clonedFrom":null,"created_at":1794909137429,"last_updated":1795773140038,"status":"draft","version":1,"triggerType":"invoice.created","graph":{"nodes":[{"id":"start","type":"trigger","position":{"x":0,"y":40.5},"data":{"config":null}}],"edges":[],"viewport":{"x":0,"y":0,"zoom":1}},"replacesDefaults":false,"stats":{"runs":0,"errors":0,"lastRunAt":null},"from":"api","pausedReason":null,"pausedDetail":null,"pausedAt":null,"groupId":null},"livemode":true}', NULL, 1795773140046, 1795773140036);
INSERT INTO invoicing_journal_golden_debd6cd7e407.entries VALUES (6, 6, 'a10c46175e76deeb refused', 2, NULL, '{"body.events":"9b80c1e6c8641d62","body.url":"febc1cdedd3c4f92","operation":"webhooks.create","thing":"77365a3b12ab659a"}', 'webhooks.create', 2, -4450164041162632394, '{"operation":"webhooks.create","credential":"331b9a2a9a5a90b7993cda14","body":{"url":"https://me.example/in","events":["invoice.created"],"description":"[iv-dyw56qv5v6ft23ir]"},"tag":"[iv-dyw56qv5v6ft23ir]","bounds":{"high":1795713242.666071,"low":1795713242.6652136},"sent":[{"attempt_timeout":20.0,"earliest":1795773140.0621426,"end":{"earliest":1795773140.062791,"kind":"not applied","latest":1795773140.0636485,"refusal":null,"secret_lost":false},"latest":1795773140.063}],"newest":true,"nonce":"09ad2a53cd3c6b78"}', 'refused', '{"why":"the service answered HTTP 422","basis":"answered","took":0.0157,"waited":0.0,"error":{"type":"ServiceError","message":"Answered 422 as it was told to","operation":"webhooks.create","status":422,"code":"operation_not_allowed","own_envelope":true},"livemode":true}', NULL, 1795773140067, 1795773140061);
INSERT INTO invoicing_journal_golden_debd6cd7e407.entries VALUES (7, 7, 'a10c46175e76deeb secret lost', 2, NULL, '{"body.events":"9b80c1e6c8641d62","body.url":"febc1cdedd3c4f92","operation":"webhooks.create","thing":"77365a3b12ab659a"}', 'webhooks.create', 2, -4450164041162632394, '{"operation":"webhooks.create","credential":"51dac979d1ee92ce3da7fcf2","body":{"url":"https://me.example/in","events":["invoice.created"],"description":"[iv-ko4puqd4x2niayxn]"},"tag":"[iv-ko4puqd4x2niayxn]","bounds":{"high":1795713242.6660035,"low":1795713242.6652136},"sent":[{"attempt_timeout":20.0,"earliest":1795773140.0755732,"end":{"earliest":1795773140.0763214,"kind":"long","latest":1795773140.0771112,"refusal":null,"secret_lost":false},"latest":1795773140.076363}],"newest":true,"nonce":"4326e30f27e8129e"}', 'applied', '{"why":"a read of the state shows the write","basis":"tag","thing":"wh_9b44a9cb709d268e33b6fb3f","reads":1,"took":0.0103,"waited":0.0,"had":"lost","value":{"id":"wh_9b44a9cb709d268e33b6fb3f","url":"https://me.example/in","events":["invoice.created"],"status":"active","description":"[iv-ko4puqd4x2niayxn]","owner":"usr_1","created_at":1795773140076},"error":{"type":"ResponseLostError","text":"webhooks.create: the request was sent and its answer was lost: ClientOSError: [Errno 104] Connection reset by peer. Reads can be called again. A write is settled by reading.","operation":"webhooks.create"},"livemode":true}', NULL, 1795773140080, 1795773140075);
INSERT INTO invoicing_journal_golden_debd6cd7e407.entries VALUES (10, 10, 'a10c46175e76deeb resolved', 0, '/sheets/mapping None', '{"body.fields":"46cb47054d23fc3f","operation":"sheets.save_mapping","thing":"77365a3b12ab659a"}', 'sheets.save_mapping', 2, -4450164041162632394, '{"operation":"sheets.save_mapping","credential":"6f260f3c20499f794aa3e4c2","body":{"fields":{"a":"b"}},"bounds":{"high":1795713242.6660035,"low":1795713242.6652136},"sent":[{"attempt_timeout":20.0,"earliest":1795773142.087311,"end":{"earliest":1795773142.087958,"kind":"long","latest":1795773142.088748,"refusal":null,"secret_lost":false},"latest":1795773142.088101}],"newest":true,"nonce":"83a416a7998fa35f"}', 'applied', '{"why":"ann found that it was applied: seen in the dashboard","basis":"person","took":0.0,"waited":0.0,"person":{"at":1795773142094,"because":"seen in the dashboard","by":"ann"},"error":{"type":"ResponseLostError","text":"sheets.save_mapping: the request was sent and its answer was lost: ClientOSError: [Errno 104] Connection reset by peer. Reads can be called again. A write is settled by reading.","operation":"sheets.save_mapping"},"livemode":true}', NULL, 1795773142094, 1795773141796);
INSERT INTO invoicing_journal_golden_debd6cd7e407.entries VALUES (8, 8, 'a10c46175e76deeb unknown', 2, '/sheets/mapping None', '{"body.fields":"46cb47054d23fc3f","operation":"sheets.save_mapping","thing":"77365a3b12ab659a"}', 'sheets.save_mapping', 2, -4450164041162632394, '{"operation":"sheets.save_mapping","credential":"2bbe7dab3f9faddd4f7c7b52","body":{"fields":{"a":"b"}},"bounds":{"high":1795713242.6660035,"low":1795713242.6652136},"sent":[{"attempt_timeout":20.0,"earliest":1795773140.086133,"end":{"earliest":1795773140.0868862,"kind":"long","latest":1795773140.087676,"refusal":null,"secret_lost":false},"latest":1795773140.086923}],"newest":true,"nonce":"259948f7b5b4ecd8"}', 'unknown', '{"why":"there is no read that shows whether it was applied","basis":"none","took":0.0063,"waited":0.0,"cause":"no read","error":{"type":"ResponseLostError","text":"sheets.save_mapping: the request was sent and its answer was lost: ClientOSError: [Errno 104] Connection reset by peer. Reads can be called again. A write is settled by reading.","operation":"sheets.save_mapping"},"livemode":true}', NULL, 1795773140088, 1795773140082);
INSERT INTO invoicing_journal_golden_debd6cd7e407.entries VALUES (11, 11, 'a10c46175e76deeb released', 0, NULL, '{"body.events":"9b80c1e6c8641d62","body.url":"febc1cdedd3c4f92","operation":"webhooks.create","thing":"77365a3b12ab659a"}', 'webhooks.create', 1, -4450164041162632394, '{"operation":"webhooks.create","credential":"e903c2d86a6f896d76b2687c","body":{"url":"https://me.example/in","events":["invoice.created"],"description":"[iv-fypgw4s6i4xa27jf]"},"tag":"[iv-fypgw4s6i4xa27jf]","bounds":{"high":1795713242.6660035,"low":1795713242.6652136},"sent":[{"attempt_timeout":20.0,"earliest":1795773142.1040206,"end":{"earliest":1795773142.1046584,"kind":"long","latest":1795773142.1054482,"refusal":null,"secret_lost":false},"latest":1795773142.1048105}],"newest":true,"nonce":"0ca6f40eae1d107d"}', NULL, NULL, NULL, NULL, 1795773142103);
INSERT INTO invoicing_journal_golden_debd6cd7e407.entries VALUES (12, 12, 'a10c46175e76deeb unsent', 3, NULL, '{"body.events":"9b80c1e6c8641d62","body.url":"3eb8f17d9d9edd20","operation":"webhooks.create","thing":"77365a3b12ab659a"}', 'webhooks.create', 1, 744801265501671492, '{"operation":"webhooks.create","credential":"3fb43071f0417e7033e211d5","body":{"url":"https://me.example/unsent","events":["invoice.created"],"description":"[iv-xhtfmamy5x5iwm7p]"},"tag":"[iv-xhtfmamy5x5iwm7p]","bounds":{"high":1795713242.6664636,"low":1795713242.6646285},"sent":[{"attempt_timeout":4.0,"earliest":1795773144.0600512,"end":null,"latest":1795773144.0618863}],"strangers":["wh_610253226420f4a4f6d4f314","wh_9b44a9cb709d268e33b6fb3f","wh_ea7b21d031c231bd0a155284"],"newest":true,"nonce":"7177ea996ce35dfb"}', NULL, NULL, NULL, NULL, 1795773144056);
INSERT INTO invoicing_journal_golden_debd6cd7e407.entries VALUES (13, 13, 'a10c46175e76deeb sending', 4, NULL, '{"body.events":"9b80c1e6c8641d62","body.url":"f9cbffed85feccad","operation":"webhooks.create","thing":"77365a3b12ab659a"}', 'webhooks.create', 1, 744801265501671492, '{"operation":"webhooks.create","credential":"a5beaa47fbb8ce1cc096efee","body":{"url":"https://me.example/sending","events":["invoice.created"],"description":"[iv-diolt6q76b5gg3ex]"},"tag":"[iv-diolt6q76b5gg3ex]","bounds":{"high":1795713242.67019,"low":1795713242.6647222},"sent":[{"attempt_timeout":4.0,"earliest":1795773145.7294743,"end":null,"latest":1795773145.7349422}],"strangers":["wh_610253226420f4a4f6d4f314","wh_9b44a9cb709d268e33b6fb3f","wh_ea7b21d031c231bd0a155284"],"newest":true,"nonce":"2f073c79c1c3845d"}', NULL, NULL, NULL, NULL, 1795773145721);
INSERT INTO invoicing_journal_golden_debd6cd7e407.entries VALUES (14, 14, 'a10c46175e76deeb unheard', 5, NULL, '{"body.events":"9b80c1e6c8641d62","body.url":"77e104a03dca2d95","operation":"webhooks.create","thing":"77365a3b12ab659a"}', 'webhooks.create', 2, 744801265501671492, '{"operation":"webhooks.create","credential":"b0c523cecf03449079a704ce","body":{"url":"https://me.example/unheard","events":["invoice.created"],"description":"[iv-pe3xhvhmxkur32dv]"},"tag":"[iv-pe3xhvhmxkur32dv]","bounds":{"high":1795713242.6667807,"low":1795713242.6649196},"sent":[{"attempt_timeout":4.0,"earliest":1795773148.033464,"end":null,"latest":1795773148.035325}],"strangers":["wh_0246888602f25943977a4c44","wh_610253226420f4a4f6d4f314","wh_9b44a9cb709d268e33b6fb3f","wh_ea7b21d031c231bd0a155284"],"newest":true,"nonce":"0e9f55c085813177"}', 'applied', '{"why":"the service answered so","basis":"answered","thing":"wh_35ea102b853ae3c505c44fd7","reads":1,"took":0.2866,"waited":0.0,"had":"returned","value":{"id":"wh_35ea102b853ae3c505c44fd7","url":"https://me.example/unheard","events":["invoice.created"],"status":"active","description":"[iv-pe3xhvhmxkur32dv]","owner":"usr_1","created_at":1795773148099}}', NULL, 1795773148107, 1795773148019);
INSERT INTO invoicing_journal_golden_debd6cd7e407.entries VALUES (15, 0, '09ca495f39fecb70', 6, NULL, '', 'webhooks.create', 1, 744801265501671492, '{"operation":"webhooks.create","credential":"c915e8fe3635727a7b992475","body":{"url":"https://me.example/None","events":["invoice.created"]},"bounds":{"high":1795713242.6673274,"low":1795713242.665197},"sent":[{"attempt_timeout":4.0,"earliest":1795773149.998212,"end":null,"latest":1795773150.0003426}],"strangers":["wh_0246888602f25943977a4c44","wh_35ea102b853ae3c505c44fd7","wh_610253226420f4a4f6d4f314","wh_9b44a9cb709d268e33b6fb3f","wh_ea7b21d031c231bd0a155284"],"newest":true}', NULL, NULL, NULL, NULL, 1795773150239);
INSERT INTO invoicing_journal_golden_debd6cd7e407.facts VALUES ('schema', '1');
INSERT INTO invoicing_journal_golden_debd6cd7e407.facts VALUES ('kind', 'journal');
INSERT INTO invoicing_journal_golden_debd6cd7e407.facts VALUES ('base_url', 'http://127.0.0.1:33839/v2');
INSERT INTO invoicing_journal_golden_debd6cd7e407.facts VALUES ('credential ', '');
INSERT INTO invoicing_journal_golden_debd6cd7e407.facts VALUES ('keys a10c46175e76deeb', 'd55f2350765788da24be97d4');
INSERT INTO invoicing_journal_golden_debd6cd7e407.facts VALUES ('place timeline', '00000001');
INSERT INTO invoicing_journal_golden_debd6cd7e407.facts VALUES ('place database', '16384');
INSERT INTO invoicing_journal_golden_debd6cd7e407.facts VALUES ('place entries', '16431');
INSERT INTO invoicing_journal_golden_debd6cd7e407.facts VALUES ('place system', '7712786892165479310');
INSERT INTO invoicing_journal_golden_debd6cd7e407.lanes VALUES (1, 'd60e1c571482473b9170cd35ef1d0e84.1', 'd55f2350765788da24be97d4');
INSERT INTO invoicing_journal_golden_debd6cd7e407.lanes VALUES (3, 'bc516a921c484b49afc4fcc6ddf94177.1', 'd55f2350765788da24be97d4');
INSERT INTO invoicing_journal_golden_debd6cd7e407.lanes VALUES (4, 'abcf41a9c56c49c7ac49eef491efce3d.1', 'd55f2350765788da24be97d4');
INSERT INTO invoicing_journal_golden_debd6cd7e407.lanes VALUES (5, '1fc02e2e624f4d97b54d5e7951c1f717.1', 'd55f2350765788da24be97d4');
INSERT INTO invoicing_journal_golden_debd6cd7e407.lanes VALUES (6, '9ccfdeaa52ae4c7e93eb68c32b8e63bf.1', 'd55f2350765788da24be97d4');
INSERT INTO invoicing_journal_golden_debd6cd7e407.members VALUES ('d60e1c571482473b9170cd35ef1d0e84', 1795773139.482041, 10, 1, 0, 1795773139.482136, '{"host":"host", "pid": 31669, "done": 0, "rate": 0.0, "lanes": 0}');
INSERT INTO invoicing_journal_golden_debd6cd7e407.members VALUES ('bc516a921c484b49afc4fcc6ddf94177', 1795773143.919636, 10, 1, 0, 1795773143.919643, '{"host":"host", "pid": 31759, "done": 0, "rate": 0.0, "lanes": 0}');
INSERT INTO invoicing_journal_golden_debd6cd7e407.members VALUES ('abcf41a9c56c49c7ac49eef491efce3d', 1795773145.420238, 10, 1, 0, 1795773145.420244, '{"host":"host", "pid": 31768, "done": 0, "rate": 0.0, "lanes": 0}');
INSERT INTO invoicing_journal_golden_debd6cd7e407.members VALUES ('1fc02e2e624f4d97b54d5e7951c1f717', 1795773147.768477, 10, 1, 0, 1795773147.768485, '{"host":"host", "pid": 31784, "done": 0, "rate": 0.0, "lanes": 0}');
INSERT INTO invoicing_journal_golden_debd6cd7e407.members VALUES ('9ccfdeaa52ae4c7e93eb68c32b8e63bf', 1795773149.928407, 10, 1, 0, 1795773149.928413, '{"host":"host", "pid": 31950, "done": 0, "rate": 0.0, "lanes": 0}');
INSERT INTO invoicing_journal_golden_debd6cd7e407.states VALUES ('/webhooks/wh_2eeb779de8804d58aabc0788', 0, NULL, NULL, NULL, 3, 1);
INSERT INTO invoicing_journal_golden_debd6cd7e407.states VALUES ('/journeys/jrn_1', 5, NULL, '{"id":"jrn_1","status":"draft","last_updated":1795773140038,"name":"renamed","description":null,"graph":{"nodes":[{"id":"start","type":"trigger","position":{"x":0,"y":40.5},"data":{"config":null}}],"edges":[],"viewport":{"x":0,"y":0,"zoom":1}},"triggerType":"invoice.created","replacesDefaults":false}', 1795773140038, 5, 0);
INSERT INTO invoicing_journal_golden_debd6cd7e407.states VALUES ('/sheets/mapping None', 10, NULL, NULL, NULL, 10, 8);
INSERT INTO invoicing_journal_golden_debd6cd7e407.unheard VALUES (11, '8cf5344fc4694253bf7040f05d5c9c27.1');
INSERT INTO invoicing_journal_golden_debd6cd7e407.unheard VALUES (12, 'bc516a921c484b49afc4fcc6ddf94177.1');
INSERT INTO invoicing_journal_golden_debd6cd7e407.unheard VALUES (13, 'abcf41a9c56c49c7ac49eef491efce3d.1');
INSERT INTO invoicing_journal_golden_debd6cd7e407.unheard VALUES (14, '1fc02e2e624f4d97b54d5e7951c1f717.1');
SELECT pg_catalog.setval('invoicing_journal_golden_debd6cd7e407.entries_seq_seq', 15, true);
SELECT pg_catalog.setval('invoicing_journal_golden_debd6cd7e407.lanes_id_seq', 6, true);
ALTER TABLE ONLY invoicing_journal_golden_debd6cd7e407.commons
    ADD CONSTRAINT commons_pkey PRIMARY KEY (number);
ALTER TABLE ONLY invoicing_journal_golden_debd6cd7e407.entries
    ADD CONSTRAINT entries_key_key UNIQUE (key);
ALTER TABLE ONLY invoicing_journal_golden_debd6cd7e407.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY invoicing_journal_golden_debd6cd7e407.facts
    ADD CONSTRAINT facts_pkey PRIMARY KEY (name);
ALTER TABLE ONLY invoicing_journal_golden_debd6cd7e407.lanes
    ADD CONSTRAINT lanes_pkey PRIMARY KEY (id);
ALTER TABLE ONLY invoicing_journal_golden_debd6cd7e407.members
    ADD CONSTRAINT members_pkey PRIMARY KEY (name);
ALTER TABLE ONLY invoicing_journal_golden_debd6cd7e407.states
    ADD CONSTRAINT states_pkey PRIMARY KEY (thing);
ALTER TABLE ONLY invoicing_journal_golden_debd6cd7e407.unheard
    ADD CONSTRAINT unheard_pkey PRIMARY KEY (seq);
CREATE INDEX claimed ON invoicing_journal_golden_debd6cd7e407.entries USING btree (thing) WHERE (claim IS NOT NULL);
CREATE INDEX not_applied ON invoicing_journal_golden_debd6cd7e407.entries USING btree (verdict, seq) WHERE (verdict <> 'applied'::text);
CREATE INDEX open_in_lane ON invoicing_journal_golden_debd6cd7e407.entries USING btree (lane, place) WHERE (done_at IS NULL);
CREATE INDEX open_of_thing ON invoicing_journal_golden_debd6cd7e407.entries USING btree (thing) WHERE ((done_at IS NULL) AND (thing IS NOT NULL));
CREATE INDEX unknown_of_thing ON invoicing_journal_golden_debd6cd7e407.entries USING btree (thing) WHERE (verdict = 'unknown'::text);
