-- claim guard
SELECT pg_try_advisory_xact_lock(hashtextextended($1::text, 0));

-- claim
WITH due AS (SELECT q."id", q."target", q."due", q."locked_until" FROM "public"."crm_jobs" AS q WHERE q."id" = COALESCE((SELECT h."id" FROM "public"."crm_jobs" AS h WHERE h."target" = $3::text AND h."due" IS NULL ORDER BY h."due", h."id" LIMIT 1), (SELECT h."id" FROM "public"."crm_jobs" AS h WHERE h."target" = $3::text AND h."due" IS NOT NULL ORDER BY h."due", h."id" LIMIT 1)) AND (q."due" IS NULL OR q."due" <= $1::timestamp with time zone) AND (q."locked_until" IS NULL OR q."locked_until" <= $1::timestamp with time zone) AND (SELECT w."locked_until" FROM "public"."crm_jobs" AS w WHERE w."target" = $3::text AND w."locked_until" > $1::timestamp with time zone ORDER BY w."locked_until" LIMIT 1) IS NULL FOR UPDATE OF q SKIP LOCKED), taken AS (UPDATE "public"."crm_jobs" AS q SET "locked_until" = $2::timestamp with time zone WHERE q."id" = ANY(ARRAY(SELECT due."id" FROM due))) SELECT due."id", due."target", due."due", due."locked_until" FROM due ORDER BY due."due" NULLS FIRST, due."id";

-- renew
WITH kept AS (SELECT q."id" AS id, held.value FROM "public"."crm_jobs" AS q JOIN unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[], $4::timestamp with time zone[]) AS held(id, token, attempt, value) ON q."id" = held.id AND q."locked_until" = held.token WHERE (SELECT w."locked_until" FROM "public"."crm_jobs" AS w WHERE w."target" = q."target" AND w."id" <> q."id" AND w."locked_until" > $5::timestamp with time zone ORDER BY w."locked_until" LIMIT 1) IS NULL FOR NO KEY UPDATE OF q SKIP LOCKED) UPDATE "public"."crm_jobs" AS q SET "locked_until" = kept.value FROM kept WHERE q."id" = kept.id RETURNING q."id";

-- renew check
SELECT q."id" FROM "public"."crm_jobs" AS q JOIN unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) ON q."id" = held.id AND q."locked_until" = held.token WHERE (SELECT w."locked_until" FROM "public"."crm_jobs" AS w WHERE w."target" = q."target" AND w."id" <> q."id" AND w."locked_until" > $4::timestamp with time zone ORDER BY w."locked_until" LIMIT 1) IS NULL;

-- release
UPDATE "public"."crm_jobs" AS q SET "locked_until" = NULL FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id";

-- finish
DELETE FROM "public"."crm_jobs" AS q USING unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id";

-- give back
UPDATE "public"."crm_jobs" AS q SET "locked_until" = NULL FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id";

-- hold
UPDATE "public"."crm_jobs" AS q SET "locked_until" = held.value FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[], $4::timestamp with time zone[]) AS held(id, token, attempt, value) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id";

-- postpone
UPDATE "public"."crm_jobs" AS q SET "locked_until" = NULL, "due" = held.value FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[], $4::timestamp with time zone[]) AS held(id, token, attempt, value) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id";

-- move
UPDATE "public"."crm_jobs" AS q SET "locked_until" = NULL, "target" = $4::text FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id";

-- move
WITH moved AS (DELETE FROM "public"."crm_jobs" AS q USING unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token RETURNING q."id", q."target", q."due", q."locked_until") INSERT INTO "app"."dead" ("id", "target", "due", "locked_until") OVERRIDING SYSTEM VALUE SELECT "id", "target", "due", NULL FROM moved RETURNING "id";

-- settle check
SELECT q."id" FROM "public"."crm_jobs" AS q WHERE q."id" = ANY($1::bigint[]);
