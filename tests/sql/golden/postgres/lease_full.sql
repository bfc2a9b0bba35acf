-- claim
WITH part1 AS (SELECT q."id", q."name", q."priority", q."retry_after", q."attempt", q."locked_until", q."headers", q."payload", q."note" FROM "app"."mail_jobs" AS q WHERE q."name" = $3::text AND (q."retry_after" IS NULL OR q."retry_after" <= $1::timestamp with time zone) AND q."locked_until" IS NULL ORDER BY q."priority", q."retry_after" NULLS FIRST, q."id" LIMIT 10 FOR UPDATE OF q SKIP LOCKED), part2 AS (SELECT q."id", q."name", q."priority", q."retry_after", q."attempt", q."locked_until", q."headers", q."payload", q."note" FROM "app"."mail_jobs" AS q WHERE q."name" = $3::text AND (q."retry_after" IS NULL OR q."retry_after" <= $1::timestamp with time zone) AND q."locked_until" <= $1::timestamp with time zone ORDER BY q."locked_until" IS NULL, q."priority", q."retry_after" NULLS FIRST, q."id" LIMIT 10 FOR UPDATE OF q SKIP LOCKED), due AS (SELECT * FROM (SELECT * FROM part1 UNION ALL SELECT * FROM part2) AS parts ORDER BY parts."priority", parts."retry_after" NULLS FIRST, parts."id" LIMIT 10), taken AS (UPDATE "app"."mail_jobs" AS q SET "locked_until" = $2::timestamp with time zone, "attempt" = CASE WHEN q."attempt" > 5 THEN q."attempt" ELSE COALESCE(q."attempt", 1) + 1 END WHERE q."id" = ANY(ARRAY(SELECT due."id" FROM due))) SELECT due."id", due."name", due."priority", due."retry_after", due."attempt", due."locked_until", due."headers", due."payload", due."note" FROM due ORDER BY due."priority", due."retry_after" NULLS FIRST, due."id";

-- renew
WITH kept AS (SELECT q."id" AS id, held.value FROM "app"."mail_jobs" AS q JOIN unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[], $4::timestamp with time zone[]) AS held(id, token, attempt, value) ON q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) FOR NO KEY UPDATE OF q SKIP LOCKED) UPDATE "app"."mail_jobs" AS q SET "locked_until" = kept.value FROM kept WHERE q."id" = kept.id RETURNING q."id";

-- renew check
SELECT q."id" FROM "app"."mail_jobs" AS q JOIN unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) ON q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt);

-- release
UPDATE "app"."mail_jobs" AS q SET "locked_until" = NULL, "attempt" = q."attempt" - held.value FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[], $4::bigint[]) AS held(id, token, attempt, value) WHERE q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) RETURNING q."id";

-- finish
DELETE FROM "app"."mail_jobs" AS q USING unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) RETURNING q."id";

-- give back
UPDATE "app"."mail_jobs" AS q SET "locked_until" = NULL FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) RETURNING q."id";

-- hold
UPDATE "app"."mail_jobs" AS q SET "locked_until" = held.value FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[], $4::timestamp with time zone[]) AS held(id, token, attempt, value) WHERE q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) RETURNING q."id";

-- postpone
UPDATE "app"."mail_jobs" AS q SET "locked_until" = NULL, "retry_after" = held.value FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[], $4::timestamp with time zone[]) AS held(id, token, attempt, value) WHERE q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) RETURNING q."id";

-- move
UPDATE "app"."mail_jobs" AS q SET "locked_until" = NULL, "name" = $4::text FROM unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) RETURNING q."id";

-- move
WITH moved AS (DELETE FROM "app"."mail_jobs" AS q USING unnest($1::bigint[], $2::timestamp with time zone[], $3::bigint[]) AS held(id, token, attempt) WHERE q."id" = held.id AND q."locked_until" = held.token AND (held.attempt IS NULL OR q."attempt" = held.attempt) RETURNING q."id", q."name", q."priority", q."retry_after", q."attempt", q."locked_until", q."headers", q."payload", q."note") INSERT INTO "app"."dead" ("id", "name", "priority", "retry_after", "attempt", "locked_until", "headers", "payload", "note") OVERRIDING SYSTEM VALUE SELECT "id", "name", "priority", "retry_after", "attempt", NULL, "headers", "payload", "note" FROM moved RETURNING "id";

-- settle check
SELECT q."id" FROM "app"."mail_jobs" AS q WHERE q."id" = ANY($1::bigint[]);
