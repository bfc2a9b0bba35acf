-- claim
WITH part1 AS (SELECT q."id", q."due", q."locked_until" FROM "public"."mail_jobs" AS q WHERE q."due" IS NULL AND q."locked_until" IS NULL ORDER BY q."due", q."id" LIMIT 10 FOR UPDATE OF q SKIP LOCKED), part2 AS (SELECT q."id", q."due", q."locked_until" FROM "public"."mail_jobs" AS q WHERE q."due" <= $1::timestamp with time zone AND q."locked_until" IS NULL ORDER BY q."due", q."id" LIMIT 10 FOR UPDATE OF q SKIP LOCKED), part3 AS (SELECT q."id", q."due", q."locked_until" FROM "public"."mail_jobs" AS q WHERE (q."due" IS NULL OR q."due" <= $1::timestamp with time zone) AND q."locked_until" <= $1::timestamp with time zone ORDER BY q."locked_until" IS NULL, q."due" NULLS FIRST, q."id" LIMIT 10 FOR UPDATE OF q SKIP LOCKED), due AS (SELECT * FROM (SELECT * FROM part1 UNION ALL SELECT * FROM part2 UNION ALL SELECT * FROM part3) AS parts ORDER BY parts."due" NULLS FIRST, parts."id" LIMIT 10), taken AS (UPDATE "public"."mail_jobs" AS q SET "locked_until" = $2::timestamp with time zone WHERE q."id" = ANY(ARRAY(SELECT due."id" FROM due))) SELECT due."id", due."due", due."locked_until" FROM due ORDER BY due."due" NULLS FIRST, due."id";

-- renew
WITH kept AS (SELECT q."id" AS id, held.value FROM "public"."mail_jobs" AS q JOIN unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[], $4::timestamp with time zone[]) AS held(id, token, attempt, value) ON q."id" = held.id AND q."locked_until" = held.token FOR NO KEY UPDATE OF q SKIP LOCKED) UPDATE "public"."mail_jobs" AS q SET "locked_until" = kept.value FROM kept WHERE q."id" = kept.id RETURNING q."id";

-- renew check
SELECT q."id" FROM "public"."mail_jobs" AS q JOIN unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) ON q."id" = held.id AND q."locked_until" = held.token;

-- release
UPDATE "public"."mail_jobs" AS q SET "locked_until" = NULL FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id";

-- finish
DELETE FROM "public"."mail_jobs" AS q USING unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id";

-- give back
UPDATE "public"."mail_jobs" AS q SET "locked_until" = NULL FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id";

-- hold
UPDATE "public"."mail_jobs" AS q SET "locked_until" = held.value FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[], $4::timestamp with time zone[]) AS held(id, token, attempt, value) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id";

-- postpone
UPDATE "public"."mail_jobs" AS q SET "locked_until" = NULL, "due" = held.value FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[], $4::timestamp with time zone[]) AS held(id, token, attempt, value) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id";

-- move
WITH moved AS (DELETE FROM "public"."mail_jobs" AS q USING unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id", q."due", q."locked_until") INSERT INTO "app"."dead" ("id", "due", "locked_until") OVERRIDING SYSTEM VALUE SELECT "id", "due", NULL FROM moved RETURNING "id";

-- settle check
SELECT q."id" FROM "public"."mail_jobs" AS q WHERE q."id" = ANY($1::bigint[]);
