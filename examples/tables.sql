-- The tables of the example applications.
CREATE TABLE customers (name text PRIMARY KEY, verdict text, secret text);
CREATE TABLE events (key text PRIMARY KEY, body text NOT NULL);
