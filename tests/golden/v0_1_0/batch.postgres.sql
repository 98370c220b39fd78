SELECT pg_catalog.set_config('search_path', '', false);
CREATE SCHEMA invoicing_batch_golden;
CREATE TABLE invoicing_batch_golden.commons (
    number bigint NOT NULL,
    text text NOT NULL
);
CREATE TABLE invoicing_batch_golden.counts (
    part smallint NOT NULL,
    state smallint NOT NULL,
    verdict text NOT NULL,
    flags smallint NOT NULL,
    many bigint NOT NULL
);
CREATE TABLE invoicing_batch_golden.entries (
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
CREATE SEQUENCE invoicing_batch_golden.entries_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE invoicing_batch_golden.entries_seq_seq OWNED BY invoicing_batch_golden.entries.seq;
CREATE TABLE invoicing_batch_golden.facts (
    name text NOT NULL,
    value text NOT NULL
);
CREATE TABLE invoicing_batch_golden.lanes (
    id bigint NOT NULL,
    owner text,
    credential text DEFAULT ''::text NOT NULL
);
CREATE SEQUENCE invoicing_batch_golden.lanes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE invoicing_batch_golden.lanes_id_seq OWNED BY invoicing_batch_golden.lanes.id;
CREATE TABLE invoicing_batch_golden.members (
    name text NOT NULL,
    seen double precision NOT NULL,
    silence double precision NOT NULL,
    sends smallint NOT NULL,
    hungry smallint DEFAULT 0 NOT NULL,
    begun double precision NOT NULL,
    status text
);
CREATE TABLE invoicing_batch_golden.states (
    thing text NOT NULL,
    place bigint NOT NULL,
    team text,
    state text,
    stamp bigint,
    newest bigint,
    before bigint
);
CREATE TABLE invoicing_batch_golden.unheard (
    seq bigint NOT NULL,
    taker text
);
ALTER TABLE ONLY invoicing_batch_golden.entries ALTER COLUMN seq SET DEFAULT nextval('invoicing_batch_golden.entries_seq_seq'::regclass);
ALTER TABLE ONLY invoicing_batch_golden.lanes ALTER COLUMN id SET DEFAULT nextval('invoicing_batch_golden.lanes_id_seq'::regclass);
INSERT INTO invoicing_batch_golden.commons VALUES (-6217988130334340413, '{"schema":1,"scope":{"base_url":"http://127.0.0.1:46761/v2","team":null,"livemode":null},"policy":{"settle_after_error":0.1,"settle_after_loss":0.2,"deadline":30.0,"resend":"proven","max_resends":1,"wait_when_limited":true,"clock_slack":0.25,"clock_band":1.0,"absence_within":600.0,"reads_lag":5.0,"journey_reader":"journeys.get","journey_reads_show_drafts":false,"tag_creates":false},"timeouts":{"attempt":20.0,"connect":10.0,"call":60.0}}');
INSERT INTO invoicing_batch_golden.commons VALUES (-5181977126271597155, '{"schema":1,"scope":{"base_url":"http://127.0.0.1:46761/v2","team":null,"livemode":null},"policy":{"settle_after_error":0.5,"settle_after_loss":0.6,"deadline":20.0,"resend":"proven","max_resends":1,"wait_when_limited":true,"clock_slack":0.25,"clock_band":1.0,"absence_within":600.0,"reads_lag":5.0,"journey_reader":"journeys.get","journey_reads_show_drafts":false,"tag_creates":false},"timeouts":{"attempt":3.0,"connect":10.0,"call":60.0}}');
INSERT INTO invoicing_batch_golden.counts VALUES (38, 2, 'applied', 1, 1);
INSERT INTO invoicing_batch_golden.counts VALUES (38, 2, 'applied', 0, 3);
INSERT INTO invoicing_batch_golden.counts VALUES (38, 2, 'refused', 0, 0);
INSERT INTO invoicing_batch_golden.counts VALUES (38, 2, 'not applied', 2, 1);
INSERT INTO invoicing_batch_golden.counts VALUES (38, 0, '', 0, 0);
INSERT INTO invoicing_batch_golden.counts VALUES (38, 1, '', 0, 0);
INSERT INTO invoicing_batch_golden.counts VALUES (38, 2, 'unknown', 0, 1);
INSERT INTO invoicing_batch_golden.counts VALUES (50, 1, '', 0, 4);
INSERT INTO invoicing_batch_golden.counts VALUES (50, 0, '', 0, 24);
INSERT INTO invoicing_batch_golden.counts VALUES (50, 2, 'applied', 0, 2);
INSERT INTO invoicing_batch_golden.entries VALUES (3, 3, 'row-2', 24, NULL, '00dc45ffeb5f5bdc3871bb67d596102e', 'webhooks.create', 2, NULL, NULL, 'applied', '{"why":"a read of the state shows the write","basis":"tag","thing":"wh_ea7b21d031c231bd0a155284","reads":1,"took":0.0113,"waited":0.0,"had":"lost","failed":"ResponseLostError: webhooks.create: the request was sent and its answer was lost: ClientOSError: [Errno 104] Connection reset by peer. Reads can be called again. A write is settled by reading."}', NULL, 1795773154650, 1795773154631);
INSERT INTO invoicing_batch_golden.entries VALUES (1, 1, 'row-0', 31, NULL, '0f96ff07cf662dae42f7ba68cac328b0', 'webhooks.create', 2, NULL, NULL, 'applied', NULL, NULL, 1795773154464, 1795773154435);
INSERT INTO invoicing_batch_golden.entries VALUES (2, 2, 'row-1', 28, NULL, '94871f998c98a14616fe8aeb5230be39', 'webhooks.create', 2, NULL, NULL, 'applied', NULL, NULL, 1795773154479, 1795773154435);
INSERT INTO invoicing_batch_golden.entries VALUES (4, 4, 'older', 19, '/webhooks/wh_2eeb779de8804d58aabc0788', '90ede9e631cb7ebdd1128a169037d61e', 'webhooks.update', 2, -6217988130334340413, '{"operation":"webhooks.update","credential":"0638f3be015e09db649ae1fc","path":{"id":"wh_2eeb779de8804d58aabc0788"},"body":{"description":"older"},"baseline":{"id":"wh_2eeb779de8804d58aabc0788","url":"https://receiver.example/in","events":["invoice.created"],"status":"active","owner":"usr_1","created_at":1795686754151,"description":"newer"},"baseline_at":1795773155.006706,"bounds":{"high":1795713242.6663587,"low":1795713242.6646528},"sent":[{"attempt_timeout":20.0,"earliest":1795773154.7556593,"end":{"earliest":null,"kind":"not applied","latest":null,"refusal":null,"secret_lost":false},"latest":1795773154.757}],"newest":false,"nonce":"b725e9c9715fdbaa"}', 'not applied', '{"why":"not sent again, because a newer write of this program to the same resource was sent","basis":"none","tries":0,"reads":1,"took":0.001,"waited":0.0,"overtaken":true,"cause":"overtaken","story":"webhooks.update, intent older\n  took 0.001 s from the call to the verdict\n     +0.000 s  resumed by a new process: only sends stored in the intent count\n     +0.000 s  read the state: HTTP 200\n  verdict: not applied - not sent again, because a newer write of this program to the same resource was sent\n  next: Nothing was changed. Write again only to replace the newer write."}', NULL, 1795773155015, 1795773154739);
INSERT INTO invoicing_batch_golden.entries VALUES (5, 5, 'newer', 19, '/webhooks/wh_2eeb779de8804d58aabc0788', 'f728bd1d27a58a9cdd92b88210e55a05', 'webhooks.update', 2, NULL, NULL, 'applied', '{"basis":"answered","thing":"wh_2eeb779de8804d58aabc0788","took":0.055,"waited":0.0}', NULL, 1795773154944, 1795773154872);
INSERT INTO invoicing_batch_golden.entries VALUES (7, 7, 'row-10', 64, NULL, 'fcc6ca46cc3093bb761c61593bc43e5e', 'webhooks.create', 2, NULL, NULL, 'applied', '{"basis":"answered","thing":"wh_0246888602f25943977a4c44","took":0.0846,"waited":0.0,"had":"delivered"}', NULL, 1795773158057, 1795773157942);
INSERT INTO invoicing_batch_golden.entries VALUES (6, 6, 'unknown', 35, '/sheets/mapping None', '5e853f368e819cd0167da957367a9e36', 'sheets.save_mapping', 2, -6217988130334340413, '{"operation":"sheets.save_mapping","credential":"2bbe7dab3f9faddd4f7c7b52","body":{"fields":{"a":"b"}},"bounds":{"high":1795713242.6663587,"low":1795713242.6650732},"sent":[{"attempt_timeout":20.0,"earliest":1795773155.1108236,"end":{"earliest":1795773155.1116416,"kind":"long","latest":1795773155.1129272,"refusal":null,"secret_lost":false},"latest":1795773155.1121092}],"newest":true,"nonce":"7c4db17cc8865a80"}', 'unknown', '{"why":"there is no read that shows whether it was applied","basis":"none","took":0.0368,"waited":0.0,"failed":"ResponseLostError: sheets.save_mapping: the request was sent and its answer was lost: ClientOSError: [Errno 104] Connection reset by peer. Reads can be called again. A write is settled by reading.","cause":"no read","story":"sheets.save_mapping, intent unknown\n  took 0.037 s from the call to the verdict\n     +0.000 s  sent, answer lost after 0.001 s: sheets.save_mapping: the request was sent and its answer was lost: ClientOSError: [Errno 104] Connection reset by peer. Reads can be called again. A write is settled by reading.\n  verdict: unknown - there is no read that shows whether it was applied\n  not sent again, because it may have been applied\n  next: Do not just send it again: the specification has no read for it. Look at the state, and store what you find with client.resolve(…); or keep .intent, and call client.settle(intent, reader=…) with a reader of your own."}', NULL, 1795773155123, 1795773155070);
INSERT INTO invoicing_batch_golden.entries VALUES (8, 8, 'row-11', 33, NULL, '2b403465141ecd43ffc89f90d4f840c4', 'webhooks.create', 2, NULL, NULL, 'applied', '{"basis":"answered","thing":"wh_35ea102b853ae3c505c44fd7","took":0.0314,"waited":0.0,"had":"delivered"}', NULL, 1795773158063, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (13, 13, 'row-16', 41, NULL, '42251c9c2c0a0c9dcdb7f03e4cf1d3f3', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"f7bd8081993dad44eb8b8ddb","body":{"url":"https://me.example/16","events":["invoice.created"],"description":"[iv-kbrbevgbzz5qvnd3]"},"tag":"[iv-kbrbevgbzz5qvnd3]","nonce":"0c81f395d8c866c5"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (14, 14, 'row-17', 29, NULL, '1efdc30e6f48f694f14954f05bbb4351', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"d80b51f4c63fa638deaeb38e","body":{"url":"https://me.example/17","events":["invoice.created"],"description":"[iv-e2sm6wukttmkprxk]"},"tag":"[iv-e2sm6wukttmkprxk]","nonce":"dabd2fc2f666caea"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (15, 15, 'row-18', 45, NULL, '88ec966cb3d4bb10ebe9d51ea3096471', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"142894080e9d5bf5f39a626f","body":{"url":"https://me.example/18","events":["invoice.created"],"description":"[iv-spu3etxkoqmzowbd]"},"tag":"[iv-spu3etxkoqmzowbd]","nonce":"b4e252406f3a0ba2"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (16, 16, 'row-19', 9, NULL, '98f1174d8dba50d7dc79d52704d48b46', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"5472c5671311b2f49bb2e1e2","body":{"url":"https://me.example/19","events":["invoice.created"],"description":"[iv-5ed2lzqe45suiemi]"},"tag":"[iv-5ed2lzqe45suiemi]","nonce":"5d30ce9ae8b0e36e"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (10, 10, 'row-13', 12, NULL, 'ce410e0c0b99df5847e58910328ad2b1', 'webhooks.create', 1, -5181977126271597155, '{"operation":"webhooks.create","credential":"984304a39504f45722610d47","body":{"url":"https://me.example/13","events":["invoice.created"],"description":"[iv-ndia4r2ddk2v6tts]"},"tag":"[iv-ndia4r2ddk2v6tts]","bounds":{"high":1795713242.6683536,"low":1795713242.6642442},"sent":[{"attempt_timeout":3.0,"earliest":1795773158.0300717,"end":null,"latest":1795773158.034181}],"newest":true,"nonce":"455e228c537b4d71"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (9, 9, 'row-12', 20, NULL, 'f6091e9a295d1a9e21214ceffed1f4f6', 'webhooks.create', 1, -5181977126271597155, '{"operation":"webhooks.create","credential":"d84b7ae1e9d264d505434241","body":{"url":"https://me.example/12","events":["invoice.created"],"description":"[iv-4tzzbi4rni6hjasy]"},"tag":"[iv-4tzzbi4rni6hjasy]","bounds":{"high":1795713242.6683536,"low":1795713242.6642442},"sent":[{"attempt_timeout":3.0,"earliest":1795773158.0291612,"end":null,"latest":1795773158.0332706}],"newest":true,"nonce":"c1799b7bf08b256b"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (11, 11, 'row-14', 55, NULL, '1545d148ccd1c15ae911d48dd282b6af', 'webhooks.create', 1, -5181977126271597155, '{"operation":"webhooks.create","credential":"6fcbe93a63cd0cb50d09c24f","body":{"url":"https://me.example/14","events":["invoice.created"],"description":"[iv-yhrtmg4so446g3at]"},"tag":"[iv-yhrtmg4so446g3at]","bounds":{"high":1795713242.6683536,"low":1795713242.6642442},"sent":[{"attempt_timeout":3.0,"earliest":1795773158.049725,"end":null,"latest":1795773158.0538344}],"newest":true,"nonce":"9875be021c0d9809"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (12, 12, 'row-15', 25, NULL, 'f173aa3f1ae06a03e5970abc9ab92b83', 'webhooks.create', 1, -5181977126271597155, '{"operation":"webhooks.create","credential":"0c1edd79c36a6e16a716a9c5","body":{"url":"https://me.example/15","events":["invoice.created"],"description":"[iv-bmumcqcu27wwews6]"},"tag":"[iv-bmumcqcu27wwews6]","bounds":{"high":1795713242.6672301,"low":1795713242.6642442},"sent":[{"attempt_timeout":3.0,"earliest":1795773158.0582998,"end":null,"latest":1795773158.0612857}],"newest":true,"nonce":"b081aa37f934bdb2"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (17, 17, 'row-20', 55, NULL, 'f4437be845782e696e41857aaf8a4327', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"374c09731e76dfbe03614ce6","body":{"url":"https://me.example/20","events":["invoice.created"],"description":"[iv-blhrlk5k2viuobru]"},"tag":"[iv-blhrlk5k2viuobru]","nonce":"bb02688a1ce807e0"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (18, 18, 'row-21', 30, NULL, 'f6186f375bd138cd11ff746dc4aeea86', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"b43ea869f6770fa951300610","body":{"url":"https://me.example/21","events":["invoice.created"],"description":"[iv-zi3jecu6ogqecety]"},"tag":"[iv-zi3jecu6ogqecety]","nonce":"60943177f68e4b91"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (19, 19, 'row-22', 32, NULL, '49f011cc718e7727b5ab2f7d4176e755', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"bd3f5393869f7fb8bbfd56b5","body":{"url":"https://me.example/22","events":["invoice.created"],"description":"[iv-4iavpg4efwjc3p2b]"},"tag":"[iv-4iavpg4efwjc3p2b]","nonce":"1c4bf185984fb70c"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (20, 20, 'row-23', 39, NULL, '1e1bf60bca8154f3b1f9eb71454b2b32', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"bd66ee2a1fb0522e70cd104e","body":{"url":"https://me.example/23","events":["invoice.created"],"description":"[iv-vxaah52bno5i5oll]"},"tag":"[iv-vxaah52bno5i5oll]","nonce":"4648908a693fcc3b"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (21, 21, 'row-24', 26, NULL, 'd0460bcae7fd3f4c39a523a668848817', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"fef6e1270443b9eeea870151","body":{"url":"https://me.example/24","events":["invoice.created"],"description":"[iv-dkt3srjdptsklqwm]"},"tag":"[iv-dkt3srjdptsklqwm]","nonce":"310b800ab5dd8802"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (22, 22, 'row-25', 61, NULL, '6989a467087c18d02789056d89376256', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"1a1789a96a8e48795441aa57","body":{"url":"https://me.example/25","events":["invoice.created"],"description":"[iv-ugrvgkspibkna2pw]"},"tag":"[iv-ugrvgkspibkna2pw]","nonce":"13dbe1f3911d4cc3"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (23, 23, 'row-26', 56, NULL, 'a5180075628f10787d00c5d50fbee16a', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"e9f29d49b7b7f099298c7d7f","body":{"url":"https://me.example/26","events":["invoice.created"],"description":"[iv-dd7l3mm5g3elqrzy]"},"tag":"[iv-dd7l3mm5g3elqrzy]","nonce":"66c98b481bd7d02d"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (24, 24, 'row-27', 38, NULL, 'd1463e93d3f1699c44d76f51099bffed', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"328c1502ed4ef8197841c919","body":{"url":"https://me.example/27","events":["invoice.created"],"description":"[iv-x2i4ch6yhhykrj56]"},"tag":"[iv-x2i4ch6yhhykrj56]","nonce":"a71a3005a1c60c3d"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (25, 25, 'row-28', 11, NULL, '89e380bb76b38d9e5819f9ada25f8a2f', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"b344b5f70c1db6f32529f468","body":{"url":"https://me.example/28","events":["invoice.created"],"description":"[iv-nlb6l2otmxhmu2y6]"},"tag":"[iv-nlb6l2otmxhmu2y6]","nonce":"86c9e702b9a6f9aa"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (26, 26, 'row-29', 48, NULL, '8349291466fec11c627546516fa922e8', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"839c2ae9e85adddc7a0de412","body":{"url":"https://me.example/29","events":["invoice.created"],"description":"[iv-w7nlulqfwrcc7hn6]"},"tag":"[iv-w7nlulqfwrcc7hn6]","nonce":"5d045c81939b4b03"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (27, 27, 'row-30', 53, NULL, '1924be524655d00dcf578d3a8098dc6c', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"b11f8dd217e0719fd45a08ac","body":{"url":"https://me.example/30","events":["invoice.created"],"description":"[iv-7ms4dg5o2m6ur53l]"},"tag":"[iv-7ms4dg5o2m6ur53l]","nonce":"9914e827cb97e837"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (28, 28, 'row-31', 16, NULL, '5ebc3d03ab08224e86f27a636b6b376b', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"73ca25fc39d9b84a203aa9a1","body":{"url":"https://me.example/31","events":["invoice.created"],"description":"[iv-w2sgm2e3e7hxihws]"},"tag":"[iv-w2sgm2e3e7hxihws]","nonce":"00d465fb4a7bc2e9"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (29, 29, 'row-32', 18, NULL, 'dd14256cc40dea52e96dac9d937a3410', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"95952abbd87bfae58998d5e7","body":{"url":"https://me.example/32","events":["invoice.created"],"description":"[iv-y2em37dllff6qfzx]"},"tag":"[iv-y2em37dllff6qfzx]","nonce":"d67b55ba02cfc5e4"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (30, 30, 'row-33', 55, NULL, '0e5a02cbc1bc885c6696e2622bf76e43', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"c1aff4c042322e20716a8003","body":{"url":"https://me.example/33","events":["invoice.created"],"description":"[iv-bm5dxw5gsswalegb]"},"tag":"[iv-bm5dxw5gsswalegb]","nonce":"6eb2fa860e5f409e"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (31, 31, 'row-34', 26, NULL, '035937b34a26c33c1f7837e07f8062f5', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"476a1a44444e8546a8570791","body":{"url":"https://me.example/34","events":["invoice.created"],"description":"[iv-so6qyrm3263tretd]"},"tag":"[iv-so6qyrm3263tretd]","nonce":"cf87b34704de6c75"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (32, 32, 'row-35', 31, NULL, 'ed5d4992b3f34f1125bc115d9f1863e8', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"ef81e7da216b46200718aab1","body":{"url":"https://me.example/35","events":["invoice.created"],"description":"[iv-d5jfflvp3rcpj4is]"},"tag":"[iv-d5jfflvp3rcpj4is]","nonce":"5bc6378a17631e36"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (33, 33, 'row-36', 37, NULL, 'b5d0870e3a6695ac74108bac208c53c5', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"34439ba896afc1a0c98c862b","body":{"url":"https://me.example/36","events":["invoice.created"],"description":"[iv-peu5peya6lrjhro3]"},"tag":"[iv-peu5peya6lrjhro3]","nonce":"7ba21ca35eace04f"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (34, 34, 'row-37', 45, NULL, 'a7be84d6675c85b8ab4ac850a721e4fd', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"cf39c31dd40fb7b7b50e5246","body":{"url":"https://me.example/37","events":["invoice.created"],"description":"[iv-sp3pxllwggxwb6fs]"},"tag":"[iv-sp3pxllwggxwb6fs]","nonce":"589c50dae33e93ad"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (35, 35, 'row-38', 8, NULL, 'fc817c8f2579d2f0948a5b587ed1cd5f', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"e9f62c17ef1e580dc4afadb5","body":{"url":"https://me.example/38","events":["invoice.created"],"description":"[iv-pi7cwftin2e5algz]"},"tag":"[iv-pi7cwftin2e5algz]","nonce":"3141f3325af880ab"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.entries VALUES (36, 36, 'row-39', 45, NULL, '296c29c78968a599fa5fa9ea5b0ef71c', 'webhooks.create', 0, -5181977126271597155, '{"operation":"webhooks.create","credential":"c60da50556d85a1e810c45dd","body":{"url":"https://me.example/39","events":["invoice.created"],"description":"[iv-zdyevic6id43efz6]"},"tag":"[iv-zdyevic6id43efz6]","nonce":"1f1e42ba38c076ae"}', NULL, NULL, NULL, NULL, 1795773157943);
INSERT INTO invoicing_batch_golden.facts VALUES ('schema', '1');
INSERT INTO invoicing_batch_golden.facts VALUES ('kind', 'batch');
INSERT INTO invoicing_batch_golden.facts VALUES ('base_url', 'http://127.0.0.1:46761/v2');
INSERT INTO invoicing_batch_golden.facts VALUES ('credential', 'e883584bfc7fadc82932fab4');
INSERT INTO invoicing_batch_golden.facts VALUES ('epoch', '42b9269181fb3fb751d05823f5f554e9');
INSERT INTO invoicing_batch_golden.facts VALUES ('begun', '1795773154270');
INSERT INTO invoicing_batch_golden.facts VALUES ('run status host:30151', '{"host":"host","pid":30151,"begun":1795773155038,"at":1795773155133,"ended":true,"pauses":[],"limited_by":null,"is_paused":false,"next_probe":null,"seconds":{}}');
INSERT INTO invoicing_batch_golden.facts VALUES ('place timeline', '00000001');
INSERT INTO invoicing_batch_golden.facts VALUES ('place database', '16472');
INSERT INTO invoicing_batch_golden.facts VALUES ('place entries', '16519');
INSERT INTO invoicing_batch_golden.facts VALUES ('place system', '7712786892165479310');
INSERT INTO invoicing_batch_golden.facts VALUES ('run status host:549', '{"host":"host","pid":549,"begun":1795773157659,"at":1795773157660,"ended":false,"pauses":[],"limited_by":"input: it has no more writes yet","is_paused":false,"next_probe":null,"seconds":{}}');
INSERT INTO invoicing_batch_golden.facts VALUES ('run total', '30');
INSERT INTO invoicing_batch_golden.facts VALUES ('input c16d55b7981a4e5cb1c9b487d7260542', '1795773157.733614');
INSERT INTO invoicing_batch_golden.facts VALUES ('checkpoint', '{"offset":3840,"digest":"d91b53440036f6dfabbf590f4923566c","lines":30,"writes":30}');
INSERT INTO invoicing_batch_golden.lanes VALUES (1, 'c16d55b7981a4e5cb1c9b487d7260542.3-1', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (2, 'c16d55b7981a4e5cb1c9b487d7260542.3-2', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (3, 'c16d55b7981a4e5cb1c9b487d7260542.3-3', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (4, 'c16d55b7981a4e5cb1c9b487d7260542.3-4', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (5, 'c16d55b7981a4e5cb1c9b487d7260542.3-5', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (6, 'c16d55b7981a4e5cb1c9b487d7260542.3-6', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (7, 'c16d55b7981a4e5cb1c9b487d7260542.3-7', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (8, 'c16d55b7981a4e5cb1c9b487d7260542.3-8', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (9, 'c16d55b7981a4e5cb1c9b487d7260542.3-9', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (10, 'c16d55b7981a4e5cb1c9b487d7260542.3-10', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (11, 'c16d55b7981a4e5cb1c9b487d7260542.3-11', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (12, 'c16d55b7981a4e5cb1c9b487d7260542.3-12', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (13, 'c16d55b7981a4e5cb1c9b487d7260542.3-13', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (14, 'c16d55b7981a4e5cb1c9b487d7260542.3-14', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (15, 'c16d55b7981a4e5cb1c9b487d7260542.3-15', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (16, 'c16d55b7981a4e5cb1c9b487d7260542.3-16', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (17, 'c16d55b7981a4e5cb1c9b487d7260542.3-17', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (18, 'c16d55b7981a4e5cb1c9b487d7260542.3-18', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (19, 'c16d55b7981a4e5cb1c9b487d7260542.3-19', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (20, 'c16d55b7981a4e5cb1c9b487d7260542.3-20', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (21, 'c16d55b7981a4e5cb1c9b487d7260542.3-21', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (22, 'c16d55b7981a4e5cb1c9b487d7260542.3-22', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (23, 'c16d55b7981a4e5cb1c9b487d7260542.3-23', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (24, 'c16d55b7981a4e5cb1c9b487d7260542.3-24', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (25, 'c16d55b7981a4e5cb1c9b487d7260542.3-25', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (26, 'c16d55b7981a4e5cb1c9b487d7260542.3-26', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (27, 'c16d55b7981a4e5cb1c9b487d7260542.3-27', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (28, 'c16d55b7981a4e5cb1c9b487d7260542.3-28', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (29, 'c16d55b7981a4e5cb1c9b487d7260542.3-29', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (30, 'c16d55b7981a4e5cb1c9b487d7260542.3-30', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (31, 'c16d55b7981a4e5cb1c9b487d7260542.3-31', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (32, 'c16d55b7981a4e5cb1c9b487d7260542.3-32', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (33, 'c16d55b7981a4e5cb1c9b487d7260542.3-33', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (34, 'c16d55b7981a4e5cb1c9b487d7260542.3-34', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (35, 'c16d55b7981a4e5cb1c9b487d7260542.3-35', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (36, 'c16d55b7981a4e5cb1c9b487d7260542.3-36', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (37, 'c16d55b7981a4e5cb1c9b487d7260542.3-37', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (38, 'c16d55b7981a4e5cb1c9b487d7260542.3-38', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (39, 'c16d55b7981a4e5cb1c9b487d7260542.3-39', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (40, 'c16d55b7981a4e5cb1c9b487d7260542.3-40', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (41, 'c16d55b7981a4e5cb1c9b487d7260542.3-41', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (42, 'c16d55b7981a4e5cb1c9b487d7260542.3-42', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (43, 'c16d55b7981a4e5cb1c9b487d7260542.3-43', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (44, 'c16d55b7981a4e5cb1c9b487d7260542.3-44', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (45, 'c16d55b7981a4e5cb1c9b487d7260542.3-45', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (46, 'c16d55b7981a4e5cb1c9b487d7260542.3-46', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (47, 'c16d55b7981a4e5cb1c9b487d7260542.3-47', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (48, 'c16d55b7981a4e5cb1c9b487d7260542.3-48', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (49, 'c16d55b7981a4e5cb1c9b487d7260542.3-49', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (50, 'c16d55b7981a4e5cb1c9b487d7260542.3-50', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (51, 'c16d55b7981a4e5cb1c9b487d7260542.3-51', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (52, 'c16d55b7981a4e5cb1c9b487d7260542.3-52', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (53, 'c16d55b7981a4e5cb1c9b487d7260542.3-53', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (54, 'c16d55b7981a4e5cb1c9b487d7260542.3-54', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (55, 'c16d55b7981a4e5cb1c9b487d7260542.3-55', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (56, 'c16d55b7981a4e5cb1c9b487d7260542.3-56', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (57, 'c16d55b7981a4e5cb1c9b487d7260542.3-57', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (58, 'c16d55b7981a4e5cb1c9b487d7260542.3-58', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (59, 'c16d55b7981a4e5cb1c9b487d7260542.3-59', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (60, 'c16d55b7981a4e5cb1c9b487d7260542.3-60', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (61, 'c16d55b7981a4e5cb1c9b487d7260542.3-61', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (62, 'c16d55b7981a4e5cb1c9b487d7260542.3-62', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (63, 'c16d55b7981a4e5cb1c9b487d7260542.3-63', '');
INSERT INTO invoicing_batch_golden.lanes VALUES (64, 'c16d55b7981a4e5cb1c9b487d7260542.3-64', '');
INSERT INTO invoicing_batch_golden.members VALUES ('38d215b66d7f403186e4863172485dec', 1795773154.507579, 10, -1, 0, 1795773154.279691, '{"host":"host", "pid": 30151, "done": 2, "rate": 0.0, "lanes": 0}');
INSERT INTO invoicing_batch_golden.members VALUES ('6f2dc75da67c446da22aed77607f1cb9', 1795773154.674079, 10, -1, 0, 1795773154.530346, '{"host":"host", "pid": 30151, "done": 1, "rate": 0.0, "lanes": 0}');
INSERT INTO invoicing_batch_golden.members VALUES ('d489c2abfb1846f6a878934cfee4d4b9', 1795773154.782459, 10, -1, 0, 1795773154.676262, '{"host":"host", "pid": 30151, "done": 1, "rate": 0.0, "lanes": 0}');
INSERT INTO invoicing_batch_golden.members VALUES ('c5b412da51e04cecaff27f3f2e8abf0a', 1795773154.973624, 10, -1, 0, 1795773154.784034, '{"host":"host", "pid": 30151, "done": 1, "rate": 0.0, "lanes": 0}');
INSERT INTO invoicing_batch_golden.members VALUES ('31d97f40c73f4049a20e4a68330f5927', 1795773155.035185, 10, -1, 0, 1795773154.984179, '{"host":"host", "pid": 30151, "done": 1, "rate": 0.0, "lanes": 0}');
INSERT INTO invoicing_batch_golden.members VALUES ('f2ab37366698485994f027e87efa68d6', 1795773155.155254, 10, -1, 0, 1795773155.036618, '{"host":"host", "pid": 30151, "done": 1, "rate": 0.0, "lanes": 0}');
INSERT INTO invoicing_batch_golden.members VALUES ('c16d55b7981a4e5cb1c9b487d7260542', 1795773157.741091, 10, 1, 0, 1795773157.649973, '{"host":"host", "pid": 549, "done": 0, "rate": 0.0, "lanes": 0}');
INSERT INTO invoicing_batch_golden.states VALUES ('/webhooks/wh_2eeb779de8804d58aabc0788', 5, NULL, '{"id":"wh_2eeb779de8804d58aabc0788","url":"https://receiver.example/in","events":["invoice.created"],"description":"newer","status":"active"}', 1795773154933, NULL, NULL);
INSERT INTO invoicing_batch_golden.states VALUES ('/sheets/mapping None', 6, NULL, NULL, NULL, NULL, NULL);
INSERT INTO invoicing_batch_golden.unheard VALUES (7, 'c16d55b7981a4e5cb1c9b487d7260542.1');
INSERT INTO invoicing_batch_golden.unheard VALUES (8, 'c16d55b7981a4e5cb1c9b487d7260542.1');
SELECT pg_catalog.setval('invoicing_batch_golden.entries_seq_seq', 36, true);
SELECT pg_catalog.setval('invoicing_batch_golden.lanes_id_seq', 64, true);
ALTER TABLE ONLY invoicing_batch_golden.commons
    ADD CONSTRAINT commons_pkey PRIMARY KEY (number);
ALTER TABLE ONLY invoicing_batch_golden.counts
    ADD CONSTRAINT counts_pkey PRIMARY KEY (part, state, verdict, flags);
ALTER TABLE ONLY invoicing_batch_golden.entries
    ADD CONSTRAINT entries_key_key UNIQUE (key);
ALTER TABLE ONLY invoicing_batch_golden.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY invoicing_batch_golden.facts
    ADD CONSTRAINT facts_pkey PRIMARY KEY (name);
ALTER TABLE ONLY invoicing_batch_golden.lanes
    ADD CONSTRAINT lanes_pkey PRIMARY KEY (id);
ALTER TABLE ONLY invoicing_batch_golden.members
    ADD CONSTRAINT members_pkey PRIMARY KEY (name);
ALTER TABLE ONLY invoicing_batch_golden.states
    ADD CONSTRAINT states_pkey PRIMARY KEY (thing);
ALTER TABLE ONLY invoicing_batch_golden.unheard
    ADD CONSTRAINT unheard_pkey PRIMARY KEY (seq);
CREATE INDEX claimed ON invoicing_batch_golden.entries USING btree (thing) WHERE (claim IS NOT NULL);
CREATE INDEX not_applied ON invoicing_batch_golden.entries USING btree (verdict, seq) WHERE (verdict <> 'applied'::text);
CREATE INDEX open_in_lane ON invoicing_batch_golden.entries USING btree (lane, place) WHERE (done_at IS NULL);
CREATE INDEX open_of_thing ON invoicing_batch_golden.entries USING btree (thing) WHERE ((done_at IS NULL) AND (thing IS NOT NULL));
CREATE INDEX unknown_of_thing ON invoicing_batch_golden.entries USING btree (thing) WHERE (verdict = 'unknown'::text);
