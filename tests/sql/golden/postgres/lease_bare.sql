-- claim
WITH part1 AS (SELECT q."ID", q."a `b` ""c"".d" FROM "public"."select" AS q WHERE q."a `b` ""c"".d" IS NULL ORDER BY q."ID" LIMIT 10 FOR UPDATE OF q SKIP LOCKED), part2 AS (SELECT q."ID", q."a `b` ""c"".d" FROM "public"."select" AS q WHERE q."a `b` ""c"".d" <= $1::timestamp with time zone ORDER BY q."a `b` ""c"".d" IS NULL, q."ID" LIMIT 10 FOR UPDATE OF q SKIP LOCKED), due AS (SELECT * FROM (SELECT * FROM part1 UNION ALL SELECT * FROM part2) AS parts ORDER BY parts."ID" LIMIT 10), taken AS (UPDATE "public"."select" AS q SET "a `b` ""c"".d" = $2::timestamp with time zone WHERE q."ID" = ANY(ARRAY(SELECT due."ID" FROM due))) SELECT due."ID", due."a `b` ""c"".d" FROM due ORDER BY due."ID";

-- renew
WITH kept AS (SELECT q."ID" AS id, held.value FROM "public"."select" AS q JOIN unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[], $4::timestamp with time zone[]) AS held(id, token, attempt, value) ON q."ID" = held.id AND q."a `b` ""c"".d" = held.token FOR NO KEY UPDATE OF q SKIP LOCKED) UPDATE "public"."select" AS q SET "a `b` ""c"".d" = kept.value FROM kept WHERE q."ID" = kept.id RETURNING q."ID";

-- renew check
SELECT q."ID" FROM "public"."select" AS q JOIN unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) ON q."ID" = held.id AND q."a `b` ""c"".d" = held.token;

-- release
UPDATE "public"."select" AS q SET "a `b` ""c"".d" = NULL FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."ID" = held.id AND q."a `b` ""c"".d" = held.token RETURNING q."ID";

-- finish
DELETE FROM "public"."select" AS q USING unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."ID" = held.id AND q."a `b` ""c"".d" = held.token RETURNING q."ID";

-- give back
UPDATE "public"."select" AS q SET "a `b` ""c"".d" = NULL FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."ID" = held.id AND q."a `b` ""c"".d" = held.token RETURNING q."ID";

-- hold
UPDATE "public"."select" AS q SET "a `b` ""c"".d" = held.value FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[], $4::timestamp with time zone[]) AS held(id, token, attempt, value) WHERE q."ID" = held.id AND q."a `b` ""c"".d" = held.token RETURNING q."ID";

-- move
WITH moved AS (DELETE FROM "public"."select" AS q USING unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."ID" = held.id AND q."a `b` ""c"".d" = held.token RETURNING q."ID", q."a `b` ""c"".d") INSERT INTO "app"."dead" ("ID", "a `b` ""c"".d") OVERRIDING SYSTEM VALUE SELECT "ID", NULL FROM moved RETURNING "ID";

-- settle check
SELECT q."ID" FROM "public"."select" AS q WHERE q."ID" = ANY($1::bigint[]);
