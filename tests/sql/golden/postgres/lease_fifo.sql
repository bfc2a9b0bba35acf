-- claim guard
SELECT pg_try_advisory_xact_lock(hashtextextended($1::text, 0));

-- claim
WITH due AS (SELECT q."id", q."target", q."attempt", q."locked_until", q."payload" FROM "public"."crm_jobs" AS q WHERE q."id" = (SELECT h."id" FROM "public"."crm_jobs" AS h WHERE h."target" = ANY(ARRAY[$3::text]) ORDER BY h."target", h."id" LIMIT 1) AND (q."locked_until" IS NULL OR q."locked_until" <= $1::timestamp with time zone) AND (SELECT w."locked_until" FROM "public"."crm_jobs" AS w WHERE w."target" = $3::text AND w."locked_until" > $1::timestamp with time zone ORDER BY w."locked_until" LIMIT 1) IS NULL FOR UPDATE OF q SKIP LOCKED), taken AS (UPDATE "public"."crm_jobs" AS q SET "locked_until" = $2::timestamp with time zone, "attempt" = CASE WHEN q."attempt" > 5 THEN q."attempt" ELSE COALESCE(q."attempt", 1) + 1 END WHERE q."id" = ANY(ARRAY(SELECT due."id" FROM due))) SELECT due."id", due."target", due."attempt", due."locked_until", due."payload" FROM due ORDER BY due."id";

-- renew
WITH kept AS (SELECT q."id" AS id, held.value FROM "public"."crm_jobs" AS q JOIN unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[], $4::timestamp with time zone[]) AS held(id, token, attempt, value) ON q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) WHERE (SELECT w."locked_until" FROM "public"."crm_jobs" AS w WHERE w."target" = q."target" AND w."id" <> q."id" AND w."locked_until" > $5::timestamp with time zone ORDER BY w."locked_until" LIMIT 1) IS NULL FOR NO KEY UPDATE OF q SKIP LOCKED) UPDATE "public"."crm_jobs" AS q SET "locked_until" = kept.value FROM kept WHERE q."id" = kept.id RETURNING q."id";

-- renew check
SELECT q."id" FROM "public"."crm_jobs" AS q JOIN unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) ON q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) WHERE (SELECT w."locked_until" FROM "public"."crm_jobs" AS w WHERE w."target" = q."target" AND w."id" <> q."id" AND w."locked_until" > $4::timestamp with time zone ORDER BY w."locked_until" LIMIT 1) IS NULL;

-- release
UPDATE "public"."crm_jobs" AS q SET "locked_until" = NULL, "attempt" = q."attempt" - held.value FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[], $4::bigint[]) AS held(id, token, attempt, value) WHERE q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) RETURNING q."id";

-- finish
DELETE FROM "public"."crm_jobs" AS q USING unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) RETURNING q."id";

-- give back
UPDATE "public"."crm_jobs" AS q SET "locked_until" = NULL FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) RETURNING q."id";

-- hold
UPDATE "public"."crm_jobs" AS q SET "locked_until" = held.value FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[], $4::timestamp with time zone[]) AS held(id, token, attempt, value) WHERE q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) RETURNING q."id";

-- move
UPDATE "public"."crm_jobs" AS q SET "locked_until" = NULL, "target" = $4::text FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) RETURNING q."id";

-- move
WITH moved AS (DELETE FROM "public"."crm_jobs" AS q USING unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) RETURNING q."id", q."target", q."attempt", q."locked_until", q."payload") INSERT INTO "app"."dead" ("id", "target", "attempt", "locked_until", "payload") OVERRIDING SYSTEM VALUE SELECT "id", "target", "attempt", NULL, "payload" FROM moved RETURNING "id";

-- settle check
SELECT q."id" FROM "public"."crm_jobs" AS q WHERE q."id" = ANY($1::bigint[]);
