-- A ledger worked out by hand: four lines of three orders, of one product with
-- an opening stock of 10. Line 2 is a sale, 3 postage, 4 a cancellation, 5 a
-- write-off of an order without a customer.

INSERT INTO orders (order_no, lines, units, value, audits, audited_lines, verdict, fence) VALUES
    ('536365',  2,  7, 163000, 1, 1, 'partial',   3),
    ('C536379', 1, -2, -51000, 1, 1, 'unchecked', 2),
    ('536380',  1, -9,      0, 1, 1, 'complete',  2);

INSERT INTO stock (sku, on_hand, back_ordered, fence) VALUES ('85049A', 0, 3, 3);

INSERT INTO accounts (customer, balance, fence) VALUES ('17850', -112000, 2);

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
    ('d1', 'stock:deduct',       'sku:85049A',    1, '536365',  2, '85049A',  6,      0, '{"on_hand":4,"back_ordered":0}', 1),
    ('d2', 'stock:deduct',       'sku:85049A',    2, '536380',  5, '85049A',  9,      0, '{"on_hand":0,"back_ordered":5}', 1),
    ('d3', 'stock:deduct',       'sku:85049A',    3, 'C536379', 4, '85049A', -2,      0, '{"on_hand":0,"back_ordered":3}', 1),
    ('b1', 'balance:debit',      'account:17850', 1, '536365',  0, '',        0, 163000, '{"balance":-163000}', 1),
    ('b2', 'balance:debit',      'account:17850', 2, 'C536379', 0, '',        0, -51000, '{"balance":-112000}', 1),
    ('p1', 'order:place',        'user:ann',      1, '',        0, '',        1,  25500, '{"placed":1}', 1),
    ('p2', 'order:place',        'user:ann',      3, '',        0, '',        1,  25500, '{"placed":2}', 1),
    ('p3', 'order:place',        'user:bob',      1, '',        0, '',        1,  25500, '{"placed":1}', 1);
