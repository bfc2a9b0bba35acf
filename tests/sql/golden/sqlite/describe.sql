-- describe columns
SELECT name, type, "notnull", dflt_value IS NOT NULL, pk, hidden FROM pragma_table_xinfo($1, $2) ORDER BY cid;

-- describe tables
SELECT name, type, sql FROM `app`.sqlite_master WHERE type IN ('table', 'view');

-- describe indexes
SELECT l.name, l."unique", l.origin, l.partial, i.name FROM pragma_index_list($1, $2) AS l, pragma_index_info(l.name, $2) AS i ORDER BY l.seq, i.seqno;
