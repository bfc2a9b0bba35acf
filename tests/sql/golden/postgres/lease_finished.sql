-- claim
WITH part1 AS (SELECT q."id", q."processed_at", q."locked_until", q."payload" FROM "public"."email_jobs" AS q WHERE q."processed_at" IS NULL AND q."locked_until" IS NULL ORDER BY q."id" LIMIT 10 FOR UPDATE OF q SKIP LOCKED), part2 AS (SELECT q."id", q."processed_at", q."locked_until", q."payload" FROM "public"."email_jobs" AS q WHERE q."processed_at" IS NULL AND q."locked_until" <= $1::timestamp with time zone ORDER BY q."locked_until" IS NULL, q."id" LIMIT 10 FOR UPDATE OF q SKIP LOCKED), due AS (SELECT * FROM (SELECT * FROM part1 UNION ALL SELECT * FROM part2) AS parts ORDER BY parts."id" LIMIT 10), taken AS (UPDATE "public"."email_jobs" AS q SET "locked_until" = $2::timestamp with time zone WHERE q."id" = ANY(ARRAY(SELECT due."id" FROM due))) SELECT due."id", due."processed_at", due."locked_until", due."payload" FROM due ORDER BY due."id";

-- renew
WITH kept AS (SELECT q."id" AS id, held.value FROM "public"."email_jobs" AS q JOIN unnest($1::text[], $2::timestamp with time zone[], $3::bigint[], $4::timestamp with time zone[]) AS held(id, token, attempt, value) ON q."id" = held.id AND q."locked_until" = held.token FOR NO KEY UPDATE OF q SKIP LOCKED) UPDATE "public"."email_jobs" AS q SET "locked_until" = kept.value FROM kept WHERE q."id" = kept.id RETURNING q."id";

-- renew check
SELECT q."id" FROM "public"."email_jobs" AS q JOIN unnest($1::text[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) ON q."id" = held.id AND q."locked_until" = held.token;

-- release
UPDATE "public"."email_jobs" AS q SET "locked_until" = NULL FROM unnest($1::text[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id";

-- finish
UPDATE "public"."email_jobs" AS q SET "locked_until" = NULL, "processed_at" = $4::timestamp with time zone FROM unnest($1::text[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id";

-- give back
UPDATE "public"."email_jobs" AS q SET "locked_until" = NULL FROM unnest($1::text[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id";

-- hold
UPDATE "public"."email_jobs" AS q SET "locked_until" = held.value FROM unnest($1::text[], $2::timestamp with time zone[], $3::bigint[], $4::timestamp with time zone[]) AS held(id, token, attempt, value) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id";

-- move
WITH moved AS (DELETE FROM "public"."email_jobs" AS q USING unnest($1::text[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id", q."processed_at", q."locked_until", q."payload") INSERT INTO "app"."dead" ("id", "processed_at", "locked_until", "payload") OVERRIDING SYSTEM VALUE SELECT "id", "processed_at", NULL, "payload" FROM moved RETURNING "id";

-- settle check
SELECT q."id" FROM "public"."email_jobs" AS q WHERE q."id" = ANY($1::text[]) AND q."processed_at" IS NULL;
