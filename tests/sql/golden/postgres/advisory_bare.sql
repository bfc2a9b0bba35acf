-- claim lock
SELECT ready.id, ready.key FROM (SELECT q."a `b` ""c"".d", concat('jobs-', q."a `b` ""c"".d") FROM "select" AS q WHERE q."a `b` ""c"".d" <> ALL($1::bigint[]) ORDER BY q."a `b` ""c"".d" LIMIT (SELECT NULL::bigint)) AS ready(id, key) WHERE pg_try_advisory_lock(hashtextextended(ready.key COLLATE "C", 0)) LIMIT 1;

-- claim lock
SELECT ready.id, ready.key FROM (SELECT q."a `b` ""c"".d", concat('jobs-', q."a `b` ""c"".d") FROM "select" AS q WHERE q."a `b` ""c"".d" <> ALL($1::bigint[]) ORDER BY q."a `b` ""c"".d" LIMIT (SELECT NULL::bigint)) AS ready(id, key) WHERE pg_try_advisory_lock(hashtextextended(ready.key COLLATE "C", 0)) LIMIT 1;

-- claim
SELECT q."a `b` ""c"".d" FROM "select" AS q WHERE q."a `b` ""c"".d" = $1::bigint AND concat('jobs-', q."a `b` ""c"".d") = $2::text;

-- unlock
SELECT pg_advisory_unlock(hashtextextended($1::text COLLATE "C", 0));

-- finish
DELETE FROM "select" AS q WHERE q."a `b` ""c"".d" = $1::bigint RETURNING q."a `b` ""c"".d";

-- move
WITH moved AS (DELETE FROM "select" AS q WHERE q."a `b` ""c"".d" = $1::bigint RETURNING q."a `b` ""c"".d") INSERT INTO "app"."dead" ("a `b` ""c"".d") OVERRIDING SYSTEM VALUE SELECT "a `b` ""c"".d" FROM moved RETURNING "a `b` ""c"".d";
