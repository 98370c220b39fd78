-- The tables of the example applications.
CREATE TABLE customers (name text PRIMARY KEY, verdict text, secret text);
CREATE TABLE events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text UNIQUE,  -- null for events of version v1 and v1.1
    body text NOT NULL
);
