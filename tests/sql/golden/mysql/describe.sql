-- describe server
SELECT VERSION(), @@version_comment, DATABASE(), @@lower_case_table_names;

-- describe table
SELECT t.table_schema, t.table_name, t.table_type, t.engine
FROM information_schema.tables AS t
WHERE t.table_schema = $1 AND t.table_name = $2 AND CAST(t.table_schema AS BINARY) = CAST($1 AS BINARY) AND CAST(t.table_name AS BINARY) = CAST($2 AS BINARY);

-- describe columns
SELECT t.column_name, t.data_type, t.column_type, t.is_nullable, t.column_default, t.extra,
       t.generation_expression, t.datetime_precision, t.character_maximum_length,
       t.character_set_name, t.collation_name
FROM information_schema.columns AS t
WHERE t.table_schema = $1 AND t.table_name = $2 AND CAST(t.table_schema AS BINARY) = CAST($1 AS BINARY) AND CAST(t.table_name AS BINARY) = CAST($2 AS BINARY)
ORDER BY t.ordinal_position;

-- describe indexes
SELECT t.index_name, t.non_unique, t.column_name, t.sub_part
FROM information_schema.statistics AS t
WHERE t.table_schema = $1 AND t.table_name = $2 AND CAST(t.table_schema AS BINARY) = CAST($1 AS BINARY) AND CAST(t.table_name AS BINARY) = CAST($2 AS BINARY) AND t.index_type IN ('BTREE', 'HASH')
ORDER BY t.index_name, t.seq_in_index;
