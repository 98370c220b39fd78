"""A trigger that notes with which ``synchronous_commit`` entries are changed."""

NOTED = """
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
    INSERT INTO facts VALUES (TG_OP, current_setting('synchronous_commit'))
        ON CONFLICT (name) DO UPDATE SET value = facts.value || ' ' || excluded.value;
    RETURN NULL;
END$$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON entries FOR EACH ROW EXECUTE FUNCTION note();
"""
