SELECT pg_catalog.set_config('search_path', '', false);
CREATE SCHEMA invoicing_outbox_golden_51d40e32874b;
CREATE TABLE invoicing_outbox_golden_51d40e32874b.commons (
    number bigint NOT NULL,
    text text NOT NULL
);
CREATE TABLE invoicing_outbox_golden_51d40e32874b.entries (
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
CREATE SEQUENCE invoicing_outbox_golden_51d40e32874b.entries_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE invoicing_outbox_golden_51d40e32874b.entries_seq_seq OWNED BY invoicing_outbox_golden_51d40e32874b.entries.seq;
CREATE TABLE invoicing_outbox_golden_51d40e32874b.facts (
    name text NOT NULL,
    value text NOT NULL
);
CREATE TABLE invoicing_outbox_golden_51d40e32874b.lanes (
    id bigint NOT NULL,
    owner text,
    credential text DEFAULT ''::text NOT NULL
);
CREATE SEQUENCE invoicing_outbox_golden_51d40e32874b.lanes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE invoicing_outbox_golden_51d40e32874b.lanes_id_seq OWNED BY invoicing_outbox_golden_51d40e32874b.lanes.id;
CREATE TABLE invoicing_outbox_golden_51d40e32874b.members (
    name text NOT NULL,
    seen double precision NOT NULL,
    silence double precision NOT NULL,
    sends smallint NOT NULL,
    hungry smallint DEFAULT 0 NOT NULL,
    begun double precision NOT NULL,
    status text
);
CREATE TABLE invoicing_outbox_golden_51d40e32874b.states (
    thing text NOT NULL,
    place bigint NOT NULL,
    team text,
    state text,
    stamp bigint,
    newest bigint,
    before bigint
);
CREATE TABLE invoicing_outbox_golden_51d40e32874b.unheard (
    seq bigint NOT NULL,
    taker text
);
ALTER TABLE ONLY invoicing_outbox_golden_51d40e32874b.entries ALTER COLUMN seq SET DEFAULT nextval('invoicing_outbox_golden_51d40e32874b.entries_seq_seq'::regclass);
ALTER TABLE ONLY invoicing_outbox_golden_51d40e32874b.lanes ALTER COLUMN id SET DEFAULT nextval('invoicing_outbox_golden_51d40e32874b.lanes_id_seq'::regclass);
INSERT INTO invoicing_outbox_golden_51d40e32874b.commons VALUES (-7551890827607843138, '{"schema":1,"scope":{"base_url":"http://127.0.0.1:44815/v2","team":null,"livemode":null},"policy":{"settle_after_error":0.1,"settle_after_loss":0.2,"deadline":30.0,"resend":"proven","max_resends":1,"wait_when_limited":true,"clock_slack":0.25,"clock_band":1.0,"absence_within":600.0,"reads_lag":5.0,"journey_reader":"journeys.get","journey_reads_show_drafts":false,"tag_creates":false},"timeouts":{"attempt":20.0,"connect":10.0,"call":60.0}}');
INSERT INTO invoicing_outbox_golden_51d40e32874b.entries VALUES (1, 1, 'told', 19, '/webhooks/wh_2eeb779de8804d58aabc0788', 'c385616839c6145e7c24c0bfbb30f41c', 'webhooks.update', 2, -7551890827607843138, '{"operation":"webhooks.update","credential":"3de9d8f1dd9196917f7de52f","path":{"id":"wh_2eeb779de8804d58aabc0788"},"body":{"description":"told"},"nonce":"97a2d3baee7bd8a8"}', 'applied', '{"why":"the service answered so","basis":"answered","thing":"wh_2eeb779de8804d58aabc0788","reads":1,"took":0.0213,"waited":0.0,"value":{"id":"wh_2eeb779de8804d58aabc0788","url":"https://receiver.example/in","events":["invoice.created"],"status":"active","description":"told","owner":"usr_1","created_at":1795686758425}}', NULL, 1795773158644, 1795773158501);
INSERT INTO invoicing_outbox_golden_51d40e32874b.entries VALUES (3, 3, 'secret lost', 43, NULL, '91d64378f1aee356a3de4f28e04a15d4', 'webhooks.create', 2, -7551890827607843138, '{"operation":"webhooks.create","credential":"51dac979d1ee92ce3da7fcf2","body":{"url":"https://me.example/in","events":["invoice.created"],"description":"[iv-mqvfzioji2fgko5w]"},"tag":"[iv-mqvfzioji2fgko5w]","bounds":{"high":1795713242.6667776,"low":1795713242.6646585},"nonce":"e491ca8f5cc4dd4e"}', 'applied', '{"why":"a read of the state shows the write","basis":"tag","thing":"wh_610253226420f4a4f6d4f314","reads":1,"took":0.0224,"waited":0.0,"had":"lost","value":{"id":"wh_610253226420f4a4f6d4f314","url":"https://me.example/in","events":["invoice.created"],"status":"active","description":"[iv-mqvfzioji2fgko5w]","owner":"usr_1","created_at":1795773158632},"error":{"type":"ResponseLostError","text":"webhooks.create: the request was sent and its answer was lost: ClientOSError: [Errno 104] Connection reset by peer. Reads can be called again. A write is settled by reading.","operation":"webhooks.create"}}', NULL, 1795773158646, 1795773158503);
INSERT INTO invoicing_outbox_golden_51d40e32874b.entries VALUES (4, 4, 'unknown', 35, '/sheets/mapping None', '5e853f368e819cd0167da957367a9e36', 'sheets.save_mapping', 2, -7551890827607843138, '{"operation":"sheets.save_mapping","credential":"2bbe7dab3f9faddd4f7c7b52","body":{"fields":{"a":"b"}},"sent":[{"attempt_timeout":20.0,"earliest":null,"end":{"earliest":null,"kind":"long","latest":null,"refusal":null,"secret_lost":false},"latest":null}],"newest":true,"nonce":"f1a26086b91e9a28"}', 'unknown', '{"why":"there is no read that shows whether it was applied","basis":"none","took":0.0125,"waited":0.0,"cause":"no read","error":{"type":"ResponseLostError","text":"sheets.save_mapping: the request was sent and its answer was lost: ClientOSError: [Errno 104] Connection reset by peer. Reads can be called again. A write is settled by reading.","operation":"sheets.save_mapping"}}', NULL, 1795773158631, 1795773158504);
INSERT INTO invoicing_outbox_golden_51d40e32874b.entries VALUES (2, 2, 'untold', 19, '/webhooks/wh_2eeb779de8804d58aabc0788', 'bc41da41b73ae6d5e140ceae18e100c3', 'webhooks.update', 2, -7551890827607843138, '{"operation":"webhooks.update","credential":"350b76f77ffb0361db821077","path":{"id":"wh_2eeb779de8804d58aabc0788"},"body":{"description":"untold"},"baseline":{"id":"wh_2eeb779de8804d58aabc0788","url":"https://receiver.example/in","events":["invoice.created"],"status":"active","owner":"usr_1","created_at":1795686758425,"description":"told"},"baseline_at":1795773158.6322558,"bounds":{"high":1795713242.666555,"low":1795713242.6646585},"nonce":"a6c535efc8004281"}', 'applied', '{"why":"the service answered so","basis":"answered","thing":"wh_2eeb779de8804d58aabc0788","took":0.0042,"waited":0.0,"value":{"id":"wh_2eeb779de8804d58aabc0788","url":"https://receiver.example/in","events":["invoice.created"],"status":"active","description":"untold","owner":"usr_1","created_at":1795686758425}}', NULL, 1795773158651, 1795773158502);
INSERT INTO invoicing_outbox_golden_51d40e32874b.entries VALUES (5, 5, 'sent', 21, NULL, 'cd939b3519729c97820d752de7b010a5', 'webhooks.create', 1, -7551890827607843138, '{"operation":"webhooks.create","credential":"2d1b4275f427cf648ec54f07","body":{"url":"https://me.example/sent","events":["invoice.created"],"description":"[iv-bmkd6livtk6acme6]"},"tag":"[iv-bmkd6livtk6acme6]","bounds":{"high":1795713242.666555,"low":1795713242.665258},"sent":[{"attempt_timeout":20.0,"earliest":1795773158.7262914,"end":{"earliest":1795773158.7297697,"kind":"long","latest":1795773158.7310667,"refusal":null,"secret_lost":false},"latest":1795773158.7275884}],"newest":true,"nonce":"440b685642fa3fb0"}', NULL, NULL, NULL, NULL, 1795773158682);
INSERT INTO invoicing_outbox_golden_51d40e32874b.entries VALUES (6, 6, 'to do', 19, '/webhooks/wh_2eeb779de8804d58aabc0788', '63b13c60ad5ea1f394048d2ad4c494be', 'webhooks.update', 0, -7551890827607843138, '{"operation":"webhooks.update","credential":"65746c54b372cba54b3d8fff","path":{"id":"wh_2eeb779de8804d58aabc0788"},"body":{"description":"to do"},"nonce":"68696543deb0fb8d"}', NULL, NULL, NULL, NULL, 1795773158740);
INSERT INTO invoicing_outbox_golden_51d40e32874b.entries VALUES (7, 7, 'last', 19, '/webhooks/wh_2eeb779de8804d58aabc0788', 'ffa6ee320889b6ffa2fa8a149a3b26eb', 'webhooks.update', 0, -7551890827607843138, '{"operation":"webhooks.update","credential":"fbf38f3ef55779fc5720b736","path":{"id":"wh_2eeb779de8804d58aabc0788"},"body":{"description":"last"},"nonce":"777e263df281d28e"}', NULL, NULL, NULL, NULL, 1795773158741);
INSERT INTO invoicing_outbox_golden_51d40e32874b.facts VALUES ('schema', '1');
INSERT INTO invoicing_outbox_golden_51d40e32874b.facts VALUES ('kind', 'outbox');
INSERT INTO invoicing_outbox_golden_51d40e32874b.facts VALUES ('base_url', 'http://127.0.0.1:44815/v2');
INSERT INTO invoicing_outbox_golden_51d40e32874b.facts VALUES ('credential 1657d63860f05535dbe562df', '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.facts VALUES ('place timeline', '00000001');
INSERT INTO invoicing_outbox_golden_51d40e32874b.facts VALUES ('place database', '16572');
INSERT INTO invoicing_outbox_golden_51d40e32874b.facts VALUES ('place entries', '16619');
INSERT INTO invoicing_outbox_golden_51d40e32874b.facts VALUES ('place system', '7712786892165479310');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (1, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (2, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (3, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (4, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (5, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (6, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (7, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (8, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (9, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (10, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (11, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (12, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (13, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (14, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (15, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (16, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (17, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (18, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (19, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (20, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (21, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (22, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (23, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (24, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (25, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (26, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (27, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (28, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (29, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (30, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (31, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (32, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (33, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (34, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (35, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (36, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (37, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (38, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (39, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (40, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (41, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (42, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (43, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (44, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (45, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (46, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (47, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (48, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (49, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (50, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (51, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (52, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (53, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (54, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (55, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (56, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (57, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (58, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (59, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (60, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (61, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (62, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (63, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.lanes VALUES (64, NULL, '');
INSERT INTO invoicing_outbox_golden_51d40e32874b.members VALUES ('7d0ea1a9da644ea4a6dc91b2b20f6357', 1795773158.667605, 10, -1, 0, 1795773158.535045, '{"host":"host", "pid": 30151, "done": 4, "rate": 0.0, "lanes": 0}');
INSERT INTO invoicing_outbox_golden_51d40e32874b.members VALUES ('be2e894d74684d2fbf8abdb75895f195', 1795773158.734406, 10, -1, 0, 1795773158.690448, '{"host":"host", "pid": 30151, "done": 0, "rate": 0.0, "lanes": 0}');
INSERT INTO invoicing_outbox_golden_51d40e32874b.states VALUES ('/sheets/mapping None', 4, NULL, NULL, NULL, NULL, NULL);
INSERT INTO invoicing_outbox_golden_51d40e32874b.states VALUES ('/webhooks/wh_2eeb779de8804d58aabc0788', 2, NULL, '{"id":"wh_2eeb779de8804d58aabc0788","url":"https://receiver.example/in","events":["invoice.created"],"description":"untold","status":"active"}', 1795773158649, NULL, NULL);
INSERT INTO invoicing_outbox_golden_51d40e32874b.unheard VALUES (4, 'e5cfadea2276463db27f29fffcb95c5b.2');
INSERT INTO invoicing_outbox_golden_51d40e32874b.unheard VALUES (3, 'e5cfadea2276463db27f29fffcb95c5b.2');
INSERT INTO invoicing_outbox_golden_51d40e32874b.unheard VALUES (2, 'e5cfadea2276463db27f29fffcb95c5b.2');
SELECT pg_catalog.setval('invoicing_outbox_golden_51d40e32874b.entries_seq_seq', 7, true);
SELECT pg_catalog.setval('invoicing_outbox_golden_51d40e32874b.lanes_id_seq', 64, true);
ALTER TABLE ONLY invoicing_outbox_golden_51d40e32874b.commons
    ADD CONSTRAINT commons_pkey PRIMARY KEY (number);
ALTER TABLE ONLY invoicing_outbox_golden_51d40e32874b.entries
    ADD CONSTRAINT entries_key_key UNIQUE (key);
ALTER TABLE ONLY invoicing_outbox_golden_51d40e32874b.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY invoicing_outbox_golden_51d40e32874b.facts
    ADD CONSTRAINT facts_pkey PRIMARY KEY (name);
ALTER TABLE ONLY invoicing_outbox_golden_51d40e32874b.lanes
    ADD CONSTRAINT lanes_pkey PRIMARY KEY (id);
ALTER TABLE ONLY invoicing_outbox_golden_51d40e32874b.members
    ADD CONSTRAINT members_pkey PRIMARY KEY (name);
ALTER TABLE ONLY invoicing_outbox_golden_51d40e32874b.states
    ADD CONSTRAINT states_pkey PRIMARY KEY (thing);
ALTER TABLE ONLY invoicing_outbox_golden_51d40e32874b.unheard
    ADD CONSTRAINT unheard_pkey PRIMARY KEY (seq);
CREATE INDEX claimed ON invoicing_outbox_golden_51d40e32874b.entries USING btree (thing) WHERE (claim IS NOT NULL);
CREATE INDEX not_applied ON invoicing_outbox_golden_51d40e32874b.entries USING btree (verdict, seq) WHERE (verdict <> 'applied'::text);
CREATE INDEX open_in_lane ON invoicing_outbox_golden_51d40e32874b.entries USING btree (lane, place) WHERE (done_at IS NULL);
CREATE INDEX open_of_thing ON invoicing_outbox_golden_51d40e32874b.entries USING btree (thing) WHERE ((done_at IS NULL) AND (thing IS NOT NULL));
CREATE INDEX unknown_of_thing ON invoicing_outbox_golden_51d40e32874b.entries USING btree (thing) WHERE (verdict = 'unknown'::text);
