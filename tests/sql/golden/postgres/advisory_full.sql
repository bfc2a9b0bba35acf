-- claim lock
SELECT ready.id, ready.key FROM (SELECT q."id", concat('it''s {', q."id", E'} \\ ', to_json(q."since" AT TIME ZONE 'UTC') #>> '{}', ' ', encode(q."raw", 'hex')) FROM "app"."mail_jobs" AS q WHERE q."name" = $2::text AND q."processed_at" IS NULL AND q."id" <> ALL($1::bigint[]) AND (q."retry_after" IS NULL OR q."retry_after" <= $3::timestamp with time zone) ORDER BY q."priority", q."retry_after" NULLS FIRST, q."id" LIMIT (SELECT NULL::bigint)) AS ready(id, key) WHERE pg_try_advisory_lock(hashtextextended(ready.key COLLATE "C", 0)) LIMIT 1;

-- claim lock
SELECT ready.id, ready.key FROM (SELECT q."id", concat('it''s {', q."id", E'} \\ ', to_json(q."since" AT TIME ZONE 'UTC') #>> '{}', ' ', encode(q."raw", 'hex')) FROM "app"."mail_jobs" AS q WHERE q."name" = $2::text AND q."processed_at" IS NULL AND q."id" <> ALL($1::bigint[]) AND (q."retry_after" IS NULL OR q."retry_after" <= $3::timestamp with time zone) ORDER BY q."priority", q."retry_after" NULLS FIRST, q."id" LIMIT (SELECT NULL::bigint)) AS ready(id, key) WHERE pg_try_advisory_lock(hashtextextended(ready.key COLLATE "C", 0)) LIMIT 1;

-- claim
WITH due AS (SELECT q."id", q."name", q."priority", q."retry_after", q."attempt", q."processed_at", q."payload", q."since", q."raw" FROM "app"."mail_jobs" AS q WHERE q."id" = $1::bigint AND q."name" = $2::text AND q."processed_at" IS NULL AND (q."retry_after" IS NULL OR q."retry_after" <= $3::timestamp with time zone) AND concat('it''s {', q."id", E'} \\ ', to_json(q."since" AT TIME ZONE 'UTC') #>> '{}', ' ', encode(q."raw", 'hex')) = $4::text FOR NO KEY UPDATE OF q SKIP LOCKED), taken AS (UPDATE "app"."mail_jobs" AS q SET "attempt" = CASE WHEN q."attempt" > 5 THEN q."attempt" ELSE COALESCE(q."attempt", 1) + 1 END WHERE q."id" = ANY(ARRAY(SELECT due."id" FROM due))) SELECT due."id", due."name", due."priority", due."retry_after", due."attempt", due."processed_at", due."payload", due."since", due."raw" FROM due;

-- unlock
SELECT pg_advisory_unlock(hashtextextended($1::text COLLATE "C", 0));

-- finish
UPDATE "app"."mail_jobs" AS q SET "processed_at" = $2::timestamp with time zone WHERE q."id" = $1::bigint AND q."processed_at" IS NULL RETURNING q."id";

-- postpone
UPDATE "app"."mail_jobs" AS q SET "retry_after" = $2::timestamp with time zone WHERE q."id" = $1::bigint AND q."processed_at" IS NULL RETURNING q."id";

-- release
UPDATE "app"."mail_jobs" AS q SET "attempt" = q."attempt" - $2::bigint WHERE q."id" = $1::bigint AND q."processed_at" IS NULL AND ($3::bigint IS NULL OR q."attempt" = $3::bigint) RETURNING q."id";

-- move
UPDATE "app"."mail_jobs" AS q SET "name" = $2::text WHERE q."id" = $1::bigint AND q."processed_at" IS NULL RETURNING q."id";

-- move
WITH moved AS (DELETE FROM "app"."mail_jobs" AS q WHERE q."id" = $1::bigint AND q."processed_at" IS NULL RETURNING q."id", q."name", q."priority", q."retry_after", q."attempt", q."processed_at", q."payload", q."since", q."raw") INSERT INTO "app"."dead" ("id", "name", "priority", "retry_after", "attempt", "processed_at", "payload", "since", "raw") OVERRIDING SYSTEM VALUE SELECT "id", "name", "priority", "retry_after", "attempt", "processed_at", "payload", "since", "raw" FROM moved RETURNING "id";
