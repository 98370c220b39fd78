SELECT pg_catalog.set_config('search_path', '', false);
CREATE TABLE public.invsvc_delivery (
    id bigint NOT NULL,
    key text NOT NULL,
    type text NOT NULL,
    body bytea,
    state text NOT NULL,
    due double precision NOT NULL,
    token text DEFAULT ''::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    received double precision NOT NULL,
    handler text DEFAULT ''::text NOT NULL,
    ordering_key text,
    CONSTRAINT invsvc_delivery_state_check CHECK ((state = ANY (ARRAY['open'::text, 'handled'::text, 'dead'::text])))
);
COMMENT ON TABLE public.invsvc_delivery IS 'invsvc_async events, schema 1';
ALTER TABLE public.invsvc_delivery ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.invsvc_delivery_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
INSERT INTO public.invsvc_delivery OVERRIDING SYSTEM VALUE VALUES (4, 'leased', 'invoice.created', '\x7b226b6579223a20226c6561736564227d', 'open', 1795859558.948657, '95c7041bfbe303e2', 1, '', 1795773158.944649, '', NULL);
INSERT INTO public.invsvc_delivery OVERRIDING SYSTEM VALUE VALUES (1, 'handled', 'invoice.created', NULL, 'handled', 1795773158.949308, '95c7041bfbe303e2', 1, '', 1795773158.939669, '', NULL);
INSERT INTO public.invsvc_delivery OVERRIDING SYSTEM VALUE VALUES (2, 'kept', 'invoice.created', '\x7b226b6579223a20226b657074227d', 'handled', 1795773158.95044, '95c7041bfbe303e2', 1, '', 1795773158.942217, '', NULL);
INSERT INTO public.invsvc_delivery OVERRIDING SYSTEM VALUE VALUES (3, 'dead', 'invoice.created', '\x7b226b6579223a202264656164227d', 'dead', 1795773158.951196, '95c7041bfbe303e2', 1, 'it cannot be read', 1795773158.943566, '', NULL);
INSERT INTO public.invsvc_delivery OVERRIDING SYSTEM VALUE VALUES (5, 'open', 'invoice.created', '\x7b226b6579223a20226f70656e227d', 'open', 1795773158.9521651, '', 0, '', 1795773158.952166, '', NULL);
INSERT INTO public.invsvc_delivery OVERRIDING SYSTEM VALUE VALUES (6, 'first', 'invoice.created', '\x7b226b6579223a20226669727374227d', 'open', 1795773158.955328, '', 0, '', 1795773158.953284, 'of one', 'thing');
INSERT INTO public.invsvc_delivery OVERRIDING SYSTEM VALUE VALUES (7, 'second', 'invoice.created', '\x7b226b6579223a20227365636f6e64227d', 'open', 'Infinity', '', 0, '', 1795773158.955942, 'of one', 'thing');
INSERT INTO public.invsvc_delivery OVERRIDING SYSTEM VALUE VALUES (8, 'claimed', 'invoice.created', NULL, 'open', 1795859558.958098, '3673ffb07565000c', 1, '', 1795773158.957475, '', NULL);
SELECT pg_catalog.setval('public.invsvc_delivery_id_seq', 8, true);
ALTER TABLE ONLY public.invsvc_delivery
    ADD CONSTRAINT invsvc_delivery_key_handler_key UNIQUE (key, handler);
ALTER TABLE ONLY public.invsvc_delivery
    ADD CONSTRAINT invsvc_delivery_pkey PRIMARY KEY (id);
CREATE INDEX invsvc_delivery_buried ON public.invsvc_delivery USING btree (due) WHERE (state = 'dead'::text);
CREATE INDEX invsvc_delivery_claimed ON public.invsvc_delivery USING btree (due) WHERE ((state = 'open'::text) AND (body IS NULL));
CREATE INDEX invsvc_delivery_dead ON public.invsvc_delivery USING btree (id) WHERE (state = 'dead'::text);
CREATE INDEX invsvc_delivery_handled ON public.invsvc_delivery USING btree (due) WHERE (state = 'handled'::text);
CREATE INDEX invsvc_delivery_kept ON public.invsvc_delivery USING btree (due) WHERE ((state = 'handled'::text) AND (body IS NOT NULL));
CREATE INDEX invsvc_delivery_next ON public.invsvc_delivery USING btree (handler, due, id) WHERE ((state = 'open'::text) AND (body IS NOT NULL));
CREATE INDEX invsvc_delivery_open ON public.invsvc_delivery USING btree (id) WHERE (state = 'open'::text);
CREATE INDEX invsvc_delivery_ordered ON public.invsvc_delivery USING btree (ordering_key, id) WHERE (ordering_key IS NOT NULL);
CREATE INDEX invsvc_delivery_waiting ON public.invsvc_delivery USING btree (due, id) WHERE ((state = 'open'::text) AND (body IS NOT NULL));
