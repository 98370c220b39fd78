PRAGMA application_id = 0;
BEGIN TRANSACTION;
CREATE TABLE invsvc_outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, base_url TEXT NOT NULL, key TEXT NOT NULL, thing TEXT,
    digest TEXT NOT NULL, operation TEXT NOT NULL, number INTEGER NOT NULL, common TEXT NOT NULL,
    intent TEXT NOT NULL, moved INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 1,
    UNIQUE (base_url, key)
);
INSERT INTO "invsvc_outbox" VALUES(1,'http://127.0.0.1:38069/v2','told','/webhooks/wh_2eeb779de8804d58aabc0788','c385616839c6145e7c24c0bfbb30f41c','webhooks.update',968819236819577965,'','',1,1);
INSERT INTO "invsvc_outbox" VALUES(2,'http://127.0.0.1:38069/v2','untold','/webhooks/wh_2eeb779de8804d58aabc0788','bc41da41b73ae6d5e140ceae18e100c3','webhooks.update',968819236819577965,'','',1,1);
INSERT INTO "invsvc_outbox" VALUES(3,'http://127.0.0.1:38069/v2','secret lost',NULL,'91d64378f1aee356a3de4f28e04a15d4','webhooks.create',968819236819577965,'','',1,1);
INSERT INTO "invsvc_outbox" VALUES(4,'http://127.0.0.1:38069/v2','unknown','/sheets/mapping None','5e853f368e819cd0167da957367a9e36','sheets.save_mapping',968819236819577965,'','',1,1);
INSERT INTO "invsvc_outbox" VALUES(5,'http://127.0.0.1:38069/v2','sent',NULL,'cd939b3519729c97820d752de7b010a5','webhooks.create',968819236819577965,'','',1,1);
INSERT INTO "invsvc_outbox" VALUES(6,'http://127.0.0.1:38069/v2','to do','/webhooks/wh_2eeb779de8804d58aabc0788','63b13c60ad5ea1f394048d2ad4c494be','webhooks.update',968819236819577965,'{"schema":1,"scope":{"base_url":"http://127.0.0.1:38069/v2","team":null,"livemode":null},"policy":{"settle_after_error":0.1,"settle_after_loss":0.2,"deadline":30.0,"resend":"proven","max_resends":1,"wait_when_limited":true,"clock_slack":0.25,"clock_band":1.0,"absence_within":600.0,"reads_lag":5.0,"journey_reader":"journeys.get","journey_reads_show_drafts":false,"tag_creates":false},"timeouts":{"attempt":20.0,"connect":10.0,"call":60.0}}','{"operation":"webhooks.update","credential":"65746c54b372cba54b3d8fff","path":{"id":"wh_2eeb779de8804d58aabc0788"},"body":{"description":"to do"},"nonce":"f2030502e0db5033"}',0,1);
INSERT INTO "invsvc_outbox" VALUES(7,'http://127.0.0.1:38069/v2','last','/webhooks/wh_2eeb779de8804d58aabc0788','ffa6ee320889b6ffa2fa8a149a3b26eb','webhooks.update',968819236819577965,'{"schema":1,"scope":{"base_url":"http://127.0.0.1:38069/v2","team":null,"livemode":null},"policy":{"settle_after_error":0.1,"settle_after_loss":0.2,"deadline":30.0,"resend":"proven","max_resends":1,"wait_when_limited":true,"clock_slack":0.25,"clock_band":1.0,"absence_within":600.0,"reads_lag":5.0,"journey_reader":"journeys.get","journey_reads_show_drafts":false,"tag_creates":false},"timeouts":{"attempt":20.0,"connect":10.0,"call":60.0}}','{"operation":"webhooks.update","credential":"fbf38f3ef55779fc5720b736","path":{"id":"wh_2eeb779de8804d58aabc0788"},"body":{"description":"last"},"nonce":"a281fdec74ce5bea"}',0,1);
CREATE TABLE invsvc_outbox_journal (base_url TEXT PRIMARY KEY, epoch TEXT NOT NULL);
INSERT INTO "invsvc_outbox_journal" VALUES('http://127.0.0.1:38069/v2','474044724caca93d9a231883d3a3ff2d');
CREATE INDEX invsvc_outbox_new ON invsvc_outbox (base_url, seq) WHERE moved = 0;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('invsvc_outbox',7);
COMMIT;
