PRAGMA application_id = 1768846949;
BEGIN TRANSACTION;
CREATE TABLE delivery (
        id INTEGER PRIMARY KEY,
        key text NOT NULL,
        type text NOT NULL,
        body BLOB,
        state text NOT NULL CHECK (state IN ('open', 'handled', 'dead')),
        due float8 NOT NULL,
        token text NOT NULL DEFAULT '',
        attempts integer NOT NULL DEFAULT 0,
        reason text NOT NULL DEFAULT '',
        received float8 NOT NULL,
        handler text NOT NULL DEFAULT '',
        ordering_key text,
        UNIQUE (key, handler)
    );
INSERT INTO "delivery" VALUES(1,'handled','invoice.created',NULL,'handled',1.79577315884571528433e+09,'ede5945b6f78f7aa',1,'',1.79577315884280586241e+09,'',NULL);
INSERT INTO "delivery" VALUES(2,'kept','invoice.created',X'7B226B6579223A20226B657074227D','handled',1.79577315884613347056e+09,'ede5945b6f78f7aa',1,'',1.79577315884348440166e+09,'',NULL);
INSERT INTO "delivery" VALUES(3,'dead','invoice.created',X'7B226B6579223A202264656164227D','dead',1.79577315884640502929e+09,'ede5945b6f78f7aa',1,'it cannot be read',1.79577315884376907347e+09,'',NULL);
INSERT INTO "delivery" VALUES(4,'leased','invoice.created',X'7B226B6579223A20226C6561736564227D','open',86400.003665735,'ede5945b6f78f7aa',1,'',1.79577315884450244907e+09,'',NULL);
INSERT INTO "delivery" VALUES(5,'open','invoice.created',X'7B226B6579223A20226F70656E227D','open',5.40600599924800917506e-03,'',0,'',1.79577315884674453732e+09,'',NULL);
INSERT INTO "delivery" VALUES(6,'first','invoice.created',X'7B226B6579223A20226669727374227D','open',5.94871399516705423593e-03,'',0,'',1.79577315884728813165e+09,'of one','thing');
INSERT INTO "delivery" VALUES(7,'second','invoice.created',X'7B226B6579223A20227365636F6E64227D','open',9e999,'',0,'',1.79577315884770369533e+09,'of one','thing');
INSERT INTO "delivery" VALUES(8,'claimed','invoice.created',NULL,'open',86400.006708729,'a75b29ce9a122b8a',1,'',1.79577315884804844851e+09,'',NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value NUMERIC NOT NULL) WITHOUT ROWID;
INSERT INTO "facts" VALUES('ahead',-59916.175674584);
INSERT INTO "facts" VALUES('checked','37f11ded-f541-4a48-8382-e0a754812854 27 3755414');
INSERT INTO "facts" VALUES('opened','37f11ded-f541-4a48-8382-e0a754812854 27 3755414');
INSERT INTO "facts" VALUES('schema',1);
CREATE INDEX delivery_waiting ON delivery (due, id) WHERE state = 'open' AND body IS NOT NULL;
CREATE INDEX delivery_next ON delivery (handler, due, id) WHERE state = 'open' AND body IS NOT NULL;
CREATE INDEX delivery_claimed ON delivery (due) WHERE state = 'open' AND body IS NULL;
CREATE INDEX delivery_handled ON delivery (due) WHERE state = 'handled';
CREATE INDEX delivery_kept ON delivery (due) WHERE state = 'handled' AND body IS NOT NULL;
CREATE INDEX delivery_open ON delivery (id) WHERE state = 'open';
CREATE INDEX delivery_dead ON delivery (id) WHERE state = 'dead';
CREATE INDEX delivery_buried ON delivery (due) WHERE state = 'dead';
CREATE INDEX delivery_ordered ON delivery (ordering_key, id) WHERE ordering_key IS NOT NULL;
COMMIT;
