PRAGMA application_id = 442284668;
BEGIN TRANSACTION;
CREATE TABLE commons (number bigint PRIMARY KEY, text text NOT NULL);
INSERT INTO "commons" VALUES(968819236819577965,'{"schema":1,"scope":{"base_url":"http://127.0.0.1:38069/v2","team":null,"livemode":null},"policy":{"settle_after_error":0.1,"settle_after_loss":0.2,"deadline":30.0,"resend":"proven","max_resends":1,"wait_when_limited":true,"clock_slack":0.25,"clock_band":1.0,"absence_within":600.0,"reads_lag":5.0,"journey_reader":"journeys.get","journey_reads_show_drafts":false,"tag_creates":false},"timeouts":{"attempt":20.0,"connect":10.0,"call":60.0}}');
CREATE TABLE entries (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, place bigint NOT NULL, key text NOT NULL UNIQUE, lane bigint NOT NULL, thing text,
        digest text NOT NULL, operation text NOT NULL, state smallint NOT NULL, common bigint, intent text,
        verdict text, outcome text, claim text, done_at bigint, added_at bigint NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
    );
INSERT INTO "entries" VALUES(1,1,'told',1,'/webhooks/wh_2eeb779de8804d58aabc0788','c385616839c6145e7c24c0bfbb30f41c','webhooks.update',2,968819236819577965,'{"operation":"webhooks.update","credential":"3de9d8f1dd9196917f7de52f","path":{"id":"wh_2eeb779de8804d58aabc0788"},"body":{"description":"told"},"nonce":"12ec303902d246c0"}','applied','{"why":"the service answered so","basis":"answered","thing":"wh_2eeb779de8804d58aabc0788","reads":1,"took":0.0071,"waited":0.0,"value":{"id":"wh_2eeb779de8804d58aabc0788","url":"https://receiver.example/in","events":["invoice.created"],"status":"active","description":"told","owner":"usr_1","created_at":1795686758193}}',NULL,1795773158282,1795773158271);
INSERT INTO "entries" VALUES(2,2,'untold',1,'/webhooks/wh_2eeb779de8804d58aabc0788','bc41da41b73ae6d5e140ceae18e100c3','webhooks.update',2,968819236819577965,'{"operation":"webhooks.update","credential":"350b76f77ffb0361db821077","path":{"id":"wh_2eeb779de8804d58aabc0788"},"body":{"description":"untold"},"baseline":{"id":"wh_2eeb779de8804d58aabc0788","url":"https://receiver.example/in","events":["invoice.created"],"status":"active","owner":"usr_1","created_at":1795686758193,"description":"told"},"baseline_at":1795773158.2829971,"bounds":{"high":1795713242.6669247,"low":1795713242.6651213},"nonce":"6ad22ad7687598db"}','applied','{"why":"the service answered so","basis":"answered","thing":"wh_2eeb779de8804d58aabc0788","took":0.0029,"waited":0.0,"value":{"id":"wh_2eeb779de8804d58aabc0788","url":"https://receiver.example/in","events":["invoice.created"],"status":"active","description":"untold","owner":"usr_1","created_at":1795686758193}}',NULL,1795773158285,1795773158271);
INSERT INTO "entries" VALUES(3,3,'secret lost',1,NULL,'91d64378f1aee356a3de4f28e04a15d4','webhooks.create',2,968819236819577965,'{"operation":"webhooks.create","credential":"51dac979d1ee92ce3da7fcf2","body":{"url":"https://me.example/in","events":["invoice.created"],"description":"[iv-llkzyr4x6m5fbvrn]"},"tag":"[iv-llkzyr4x6m5fbvrn]","bounds":{"high":1795713242.6669247,"low":1795713242.6651213},"nonce":"f8fa2283b9510a7d"}','applied','{"why":"a read of the state shows the write","basis":"tag","thing":"wh_610253226420f4a4f6d4f314","reads":1,"took":0.0047,"waited":0.0,"had":"lost","value":{"id":"wh_610253226420f4a4f6d4f314","url":"https://me.example/in","events":["invoice.created"],"status":"active","description":"[iv-llkzyr4x6m5fbvrn]","owner":"usr_1","created_at":1795773158282},"error":{"type":"ResponseLostError","text":"webhooks.create: the request was sent and its answer was lost: ClientOSError: [Errno 104] Connection reset by peer. Reads can be called again. A write is settled by reading.","operation":"webhooks.create"}}',NULL,1795773158284,1795773158271);
INSERT INTO "entries" VALUES(4,4,'unknown',1,'/sheets/mapping None','5e853f368e819cd0167da957367a9e36','sheets.save_mapping',2,968819236819577965,'{"operation":"sheets.save_mapping","credential":"2bbe7dab3f9faddd4f7c7b52","body":{"fields":{"a":"b"}},"sent":[{"attempt_timeout":20.0,"earliest":null,"end":{"earliest":null,"kind":"long","latest":null,"refusal":null,"secret_lost":false},"latest":null}],"newest":true,"nonce":"ec65d8c69783cbe8"}','unknown','{"why":"there is no read that shows whether it was applied","basis":"none","took":0.0044,"waited":0.0,"cause":"no read","error":{"type":"ResponseLostError","text":"sheets.save_mapping: the request was sent and its answer was lost: ClientOSError: [Errno 104] Connection reset by peer. Reads can be called again. A write is settled by reading.","operation":"sheets.save_mapping"}}',NULL,1795773158280,1795773158271);
INSERT INTO "entries" VALUES(5,5,'sent',1,NULL,'cd939b3519729c97820d752de7b010a5','webhooks.create',1,968819236819577965,'{"operation":"webhooks.create","credential":"2d1b4275f427cf648ec54f07","body":{"url":"https://me.example/sent","events":["invoice.created"],"description":"[iv-cnrxnvr6bxfn2vf3]"},"tag":"[iv-cnrxnvr6bxfn2vf3]","bounds":{"high":1795713242.6663122,"low":1795713242.6651213},"sent":[{"attempt_timeout":20.0,"earliest":1795773158.3280883,"end":{"earliest":1795773158.3290992,"kind":"long","latest":1795773158.33029,"refusal":null,"secret_lost":false},"latest":1795773158.3292792}],"newest":true,"nonce":"81d03d6d1ba967f3"}',NULL,NULL,NULL,NULL,1795773158319);
CREATE TABLE facts (name text PRIMARY KEY, value text NOT NULL) WITHOUT ROWID;
INSERT INTO "facts" VALUES('base_url','http://127.0.0.1:38069/v2');
INSERT INTO "facts" VALUES('credential','c24a26c1f7e317585a41dc6d');
INSERT INTO "facts" VALUES('epoch','474044724caca93d9a231883d3a3ff2d');
INSERT INTO "facts" VALUES('kind','outbox');
INSERT INTO "facts" VALUES('schema','1');
INSERT INTO "facts" VALUES('sends','6');
CREATE TABLE lanes (id INTEGER PRIMARY KEY AUTOINCREMENT, owner text, credential text NOT NULL DEFAULT '');
INSERT INTO "lanes" VALUES(1,NULL,'');
CREATE TABLE members (
        name text PRIMARY KEY, seen float8 NOT NULL, silence float8 NOT NULL, sends smallint NOT NULL,
        hungry smallint NOT NULL DEFAULT 0, begun float8 NOT NULL, status text
    );
INSERT INTO "members" VALUES('923ef9f800ca4dad8e3474d2d0fd2c4b',1.79577315829998850819e+09,9e999,-1,0,1.79577315827001476292e+09,'{"host":"host", "pid": 30151, "done": 4, "rate": 0.0, "lanes": 0}');
INSERT INTO "members" VALUES('6d94f7463ca0453dade749b895e3ae9e',1.79577315833599710469e+09,9e999,-1,0,1.79577315831298375131e+09,'{"host":"host", "pid": 30151, "done": 0, "rate": 0.0, "lanes": 0}');
CREATE TABLE states (
        thing text PRIMARY KEY, place bigint NOT NULL, team text, state text, stamp bigint, newest bigint,
        before bigint
    );
INSERT INTO "states" VALUES('/sheets/mapping None',4,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "states" VALUES('/webhooks/wh_2eeb779de8804d58aabc0788',2,NULL,'{"id":"wh_2eeb779de8804d58aabc0788","url":"https://receiver.example/in","events":["invoice.created"],"description":"untold","status":"active"}',1795773158285,NULL,NULL);
CREATE TABLE unheard (seq bigint PRIMARY KEY, taker text) WITHOUT ROWID;
INSERT INTO "unheard" VALUES(2,'6bf43cb4f9124812a12c8b864e9cd44e.2');
INSERT INTO "unheard" VALUES(3,'6bf43cb4f9124812a12c8b864e9cd44e.2');
INSERT INTO "unheard" VALUES(4,'6bf43cb4f9124812a12c8b864e9cd44e.2');
CREATE INDEX open_in_lane ON entries (lane, place) WHERE done_at IS NULL;
CREATE INDEX open_of_thing ON entries (thing) WHERE done_at IS NULL AND thing IS NOT NULL;
CREATE INDEX not_applied ON entries (verdict, seq) WHERE verdict <> 'applied';
CREATE INDEX unknown_of_thing ON entries (thing) WHERE verdict = 'unknown';
CREATE INDEX claimed ON entries (thing) WHERE claim IS NOT NULL;
CREATE TRIGGER sent_first AFTER INSERT ON entries WHEN NEW.state = 1
        BEGIN UPDATE facts SET value = value + 1 WHERE name = 'sends'; END;
CREATE TRIGGER sent_again AFTER UPDATE OF state ON entries WHEN NEW.state = 1
        BEGIN UPDATE facts SET value = value + 1 WHERE name = 'sends'; END;
CREATE TRIGGER done AFTER UPDATE OF state ON entries
    WHEN NEW.state = 2 AND OLD.state <> 2
    BEGIN
        INSERT INTO unheard (seq, taker) VALUES (NEW.seq, (SELECT value FROM facts WHERE name = 'taker'));
    END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('lanes',1);
INSERT INTO "sqlite_sequence" VALUES('entries',5);
COMMIT;
