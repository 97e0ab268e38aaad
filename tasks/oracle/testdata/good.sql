-- A ledger worked out by hand: five lines of four orders, and two transfers and two
-- fulfilments of which the second could not be. The opening stock is 10. Line 2 is
-- a sale, 3 postage, 4 a cancellation, 5 a write-off of an order without a
-- customer, 6 postage that is paid back.

INSERT INTO orders (order_no, lines, units, value, audits, audited_lines, verdict, fence) VALUES
    ('536365',  2,  7, 163000, 1, 1, 'partial',   3),
    ('C536379', 1, -2, -51000, 1, 1, 'unchecked', 2),
    ('536380',  1, -9,      0, 1, 1, 'complete',  2),
    ('C536390', 1, -1, -50000, 1, 1, 'complete',  2);

INSERT INTO orders (order_no, fulfilment, fence) VALUES ('7001', 'fulfilled', 1), ('7002', 'short', 1);

INSERT INTO stock (sku, on_hand, back_ordered, fence) VALUES ('85049A', 0, 3, 3), ('22086', 6, 0, 2), ('22087', 7, 0, 2);

INSERT INTO accounts (customer, balance, declined, fence) VALUES ('17850', -112000, 0, 2), ('13047', 30000, 1, 3), ('12583', 20000, 0, 2);

INSERT INTO users (user_id, placed, fence) VALUES ('ann', 2, 3), ('bob', 1, 1);

INSERT INTO placements (task_id, user_id, number, submission, items, units, value) VALUES
    ('p1', 'ann', 1, 'f1', 1, 1, 25500),
    ('p2', 'ann', 2, 'f2', 1, 1, 25500),
    ('p3', 'bob', 1, 'f1', 1, 1, 25500);

INSERT INTO journal (task_id, kind, subject, fence, order_no, line, sku, quantity, amount, row_after, recorded_ms) VALUES
    ('a1', 'warehouse:allocate', 'order:536365',  1, '536365',  2, '85049A',  6, 153000, '{"lines":1,"units":6,"value":153000,"audits":0,"audited_lines":0,"verdict":""}', 1),
    ('a2', 'order:audit',        'order:536365',  2, '536365',  0, '',        2,      0, '{"lines":1,"units":6,"value":153000,"audits":1,"audited_lines":1,"verdict":"partial"}', 1),
    ('a3', 'warehouse:allocate', 'order:536365',  3, '536365',  3, 'POST',    1,  10000, '{"lines":2,"units":7,"value":163000,"audits":1,"audited_lines":1,"verdict":"partial"}', 1),
    ('a4', 'warehouse:allocate', 'order:C536379', 1, 'C536379', 4, '85049A', -2, -51000, '{"lines":1,"units":-2,"value":-51000,"audits":0,"audited_lines":0,"verdict":""}', 1),
    ('a5', 'order:audit',        'order:C536379', 2, 'C536379', 0, '',        0,      0, '{"lines":1,"units":-2,"value":-51000,"audits":1,"audited_lines":1,"verdict":"unchecked"}', 1),
    ('a6', 'warehouse:allocate', 'order:536380',  1, '536380',  5, '85049A', -9,      0, '{"lines":1,"units":-9,"value":0,"audits":0,"audited_lines":0,"verdict":""}', 1),
    ('a7', 'order:audit',        'order:536380',  2, '536380',  0, '',        1,      0, '{"lines":1,"units":-9,"value":0,"audits":1,"audited_lines":1,"verdict":"complete"}', 1),
    ('a8', 'warehouse:allocate', 'order:C536390', 1, 'C536390', 6, 'POST',   -1, -50000, '{"lines":1,"units":-1,"value":-50000,"audits":0,"audited_lines":0,"verdict":""}', 1),
    ('a9', 'order:audit',        'order:C536390', 2, 'C536390', 0, '',        1,      0, '{"lines":1,"units":-1,"value":-50000,"audits":1,"audited_lines":1,"verdict":"complete"}', 1),
    ('d1', 'stock:deduct',       'sku:85049A',    1, '536365',  2, '85049A',  6,      0, '{"on_hand":4,"back_ordered":0}', 1),
    ('d2', 'stock:deduct',       'sku:85049A',    2, '536380',  5, '85049A',  9,      0, '{"on_hand":0,"back_ordered":5}', 1),
    ('d3', 'stock:deduct',       'sku:85049A',    3, 'C536379', 4, '85049A', -2,      0, '{"on_hand":0,"back_ordered":3}', 1),
    ('b1', 'balance:debit',      'account:17850', 1, '536365',  0, '',        0, 163000, '{"balance":-163000}', 1),
    ('b2', 'balance:debit',      'account:17850', 2, 'C536379', 0, '',        0, -51000, '{"balance":-112000}', 1),
    ('b3', 'balance:debit',      'account:13047', 1, 'C536390', 0, '',        0, -50000, '{"balance":50000}', 1),
    ('p1', 'order:place',        'user:ann',      1, '',        0, '',        1,  25500, '{"placed":1}', 1),
    ('p2', 'order:place',        'user:ann',      3, '',        0, '',        1,  25500, '{"placed":2}', 1),
    ('p3', 'order:place',        'user:bob',      1, '',        0, '',        1,  25500, '{"placed":1}', 1);

INSERT INTO journal (task_id, part, kind, subject, fence, order_no, line, sku, quantity, amount, row_after, recorded_ms) VALUES
    ('t1', 0, 'balance:transfer', 'account:13047', 2, '',     0, '',      0,  20000, '{"balance":30000,"declined":0}', 1),
    ('t1', 1, 'balance:transfer', 'account:12583', 1, '',     0, '',      0, -20000, '{"balance":20000,"declined":0}', 1),
    ('t2', 0, 'balance:transfer', 'account:13047', 3, '',     0, '',      0,  40000, '{"balance":30000,"declined":1}', 1),
    ('t2', 1, 'balance:transfer', 'account:12583', 2, '',     0, '',      0, -40000, '{"balance":20000,"declined":0}', 1),
    ('f1', 0, 'order:fulfil',     'order:7001',    1, '7001', 0, '',      7,      0, '{"fulfilment":"fulfilled"}', 1),
    ('f1', 1, 'order:fulfil',     'sku:22086',     1, '7001', 0, '22086', 4,      0, '{"on_hand":6,"back_ordered":0}', 1),
    ('f1', 2, 'order:fulfil',     'sku:22087',     1, '7001', 0, '22087', 3,      0, '{"on_hand":7,"back_ordered":0}', 1),
    ('f2', 0, 'order:fulfil',     'order:7002',    1, '7002', 0, '',      8,      0, '{"fulfilment":"short"}', 1),
    ('f2', 1, 'order:fulfil',     'sku:22086',     2, '7002', 0, '22086', 7,      0, '{"on_hand":6,"back_ordered":0}', 1),
    ('f2', 2, 'order:fulfil',     'sku:22087',     2, '7002', 0, '22087', 1,      0, '{"on_hand":7,"back_ordered":0}', 1);
