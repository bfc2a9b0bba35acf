-- describe table
SELECT c.relname::text, n.nspname::text, c.relkind::text,
       ARRAY(SELECT COALESCE(a.attname::text, '')
             FROM pg_catalog.pg_partitioned_table AS p
             CROSS JOIN unnest(p.partattrs::int2[]) WITH ORDINALITY AS k(attnum, at)
             LEFT JOIN pg_catalog.pg_attribute AS a
                    ON a.attrelid = c.oid AND a.attnum = k.attnum AND k.attnum > 0
             WHERE p.partrelid = c.oid
             ORDER BY k.at),
       pg_catalog.version()
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass($1::text);

-- describe columns
WITH RECURSIVE base AS (
    SELECT a.attnum, a.atttypid AS oid, a.atttypmod AS modifier, false AS not_null
    FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = pg_catalog.to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT b.attnum, t.typbasetype, t.typtypmod, b.not_null OR t.typnotnull
    FROM base AS b JOIN pg_catalog.pg_type AS t ON t.oid = b.oid
    WHERE t.typtype = 'd'
)
SELECT a.attname::text,
       pg_catalog.format_type(a.atttypid, a.atttypmod),
       pg_catalog.format_type(b.oid, -1),
       b.modifier,
       a.attnotnull OR b.not_null,
       a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL,
       a.attgenerated <> '',
       a.attidentity = 'a'
FROM pg_catalog.pg_attribute AS a
JOIN base AS b ON b.attnum = a.attnum
JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
JOIN pg_catalog.pg_type AS u ON u.oid = b.oid AND u.typtype <> 'd'
WHERE a.attrelid = pg_catalog.to_regclass($1::text)
ORDER BY a.attnum;

-- describe indexes
SELECT i.indisunique AND i.indimmediate,
       i.indpred IS NOT NULL,
       ARRAY(SELECT COALESCE(a.attname::text, '')
             FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, at)
             LEFT JOIN pg_catalog.pg_attribute AS a
                    ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum > 0
             WHERE k.at <= i.indnkeyatts
             ORDER BY k.at)
FROM pg_catalog.pg_index AS i
WHERE i.indrelid = pg_catalog.to_regclass($1::text) AND i.indisvalid
ORDER BY i.indexrelid;
