-- The tables of the ledger, for SQLite and PostgreSQL alike. Amounts are in
-- ten-thousandths of a pound. A column named fence holds the highest fencing
-- token that the row has seen, see package lock/sqlfence.

CREATE TABLE IF NOT EXISTS ledger_meta (
    id        BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    version   BIGINT NOT NULL,
    opened_ms BIGINT NOT NULL -- when a process last opened the ledger, Unix milliseconds
);

-- A test write fills and empties this row.
CREATE TABLE IF NOT EXISTS ledger_room (
    id     BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    filler TEXT   NOT NULL
);

CREATE TABLE IF NOT EXISTS stock (
    sku          TEXT   NOT NULL PRIMARY KEY,
    on_hand      BIGINT NOT NULL CHECK (on_hand >= 0),
    back_ordered BIGINT NOT NULL DEFAULT 0 CHECK (back_ordered >= 0),
    fence        BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE IF NOT EXISTS accounts (
    customer TEXT   NOT NULL PRIMARY KEY,
    balance  BIGINT NOT NULL DEFAULT 0,
    declined BIGINT NOT NULL DEFAULT 0, -- transfers from it for which it was too small
    fence    BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE IF NOT EXISTS orders (
    order_no      TEXT   NOT NULL PRIMARY KEY,
    lines         BIGINT NOT NULL DEFAULT 0,
    units         BIGINT NOT NULL DEFAULT 0,
    value         BIGINT NOT NULL DEFAULT 0,
    audits        BIGINT NOT NULL DEFAULT 0,
    audited_lines BIGINT NOT NULL DEFAULT 0, -- lines at the last audit
    verdict       TEXT   NOT NULL DEFAULT '', -- of the last audit
    fulfilment    TEXT   NOT NULL DEFAULT '', -- of the last attempt to fulfil it
    fence         BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE IF NOT EXISTS users (
    user_id TEXT   NOT NULL PRIMARY KEY,
    placed  BIGINT NOT NULL DEFAULT 0, -- orders so far, the number of the last
    fence   BIGINT NOT NULL DEFAULT 0
);

-- The lock around the task keeps (user_id, number) and (user_id, submission)
-- unique. A real shop would want both constraints here as well.
CREATE TABLE IF NOT EXISTS placements (
    task_id    TEXT   NOT NULL PRIMARY KEY,
    user_id    TEXT   NOT NULL,
    number     BIGINT NOT NULL,
    submission TEXT   NOT NULL,
    items      BIGINT NOT NULL,
    units      BIGINT NOT NULL,
    value      BIGINT NOT NULL
);

CREATE INDEX IF NOT EXISTS placements_submission ON placements (user_id, submission);

-- One row for each change, with the changed row afterwards, in JSON. Every task
-- has a part 0, so that a task of the id of another one meets it.
CREATE TABLE IF NOT EXISTS journal (
    task_id     TEXT   NOT NULL,
    part        BIGINT NOT NULL DEFAULT 0, -- counts the rows that the task changes
    kind        TEXT   NOT NULL,
    subject     TEXT   NOT NULL, -- the row's resource, such as sku:85123A
    fence       BIGINT NOT NULL,
    order_no    TEXT   NOT NULL,
    line        BIGINT NOT NULL,
    sku         TEXT   NOT NULL,
    quantity    BIGINT NOT NULL,
    amount      BIGINT NOT NULL,
    row_after   TEXT   NOT NULL,
    recorded_ms BIGINT NOT NULL, -- Unix milliseconds
    PRIMARY KEY (task_id, part)
);
