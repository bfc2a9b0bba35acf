-- claim ([7], '<now>')
WITH part1 AS (SELECT q."id", q."retry_after", q."attempt", q."payload" FROM "app"."mail_jobs" AS q WHERE q."id" <> ALL($1::bigint[]) AND q."retry_after" IS NULL ORDER BY q."retry_after", q."id" LIMIT 1 FOR UPDATE OF q SKIP LOCKED), part2 AS (SELECT q."id", q."retry_after", q."attempt", q."payload" FROM "app"."mail_jobs" AS q WHERE q."id" <> ALL($1::bigint[]) AND q."retry_after" <= $2::timestamp with time zone AND NOT EXISTS (SELECT FROM part1) ORDER BY q."retry_after", q."id" LIMIT 1 FOR UPDATE OF q SKIP LOCKED) SELECT * FROM part1 UNION ALL SELECT * FROM part2;

-- claim ([7], '<now>')
WITH part1 AS (SELECT q."id", q."retry_after", q."attempt", q."payload" FROM "app"."mail_jobs" AS q WHERE q."id" <> ALL($1::bigint[]) AND q."retry_after" IS NULL ORDER BY q."retry_after", q."id" LIMIT 10 FOR UPDATE OF q SKIP LOCKED), part2 AS (SELECT q."id", q."retry_after", q."attempt", q."payload" FROM "app"."mail_jobs" AS q WHERE q."id" <> ALL($1::bigint[]) AND q."retry_after" <= $2::timestamp with time zone ORDER BY q."retry_after", q."id" LIMIT (SELECT 10 - count(*) FROM part1) FOR UPDATE OF q SKIP LOCKED) SELECT * FROM part1 UNION ALL SELECT * FROM part2;

-- finish (1,)
DELETE FROM "app"."mail_jobs" AS q WHERE q."id" = $1::bigint RETURNING q."id";

-- give back (1,)
UPDATE "app"."mail_jobs" AS q SET "attempt" = CASE WHEN q."attempt" >= 9223372036854775807 THEN q."attempt" ELSE COALESCE(q."attempt", 1) + 1 END WHERE q."id" = $1::bigint RETURNING q."id";

-- postpone (1, '<due>')
UPDATE "app"."mail_jobs" AS q SET "retry_after" = $2::timestamp with time zone, "attempt" = CASE WHEN q."attempt" >= 9223372036854775807 THEN q."attempt" ELSE COALESCE(q."attempt", 1) + 1 END WHERE q."id" = $1::bigint RETURNING q."id";

-- move (1,)
WITH moved AS (DELETE FROM "app"."mail_jobs" AS q WHERE q."id" = $1::bigint RETURNING q."id", q."retry_after", q."attempt", q."payload") INSERT INTO "app"."dead" ("id", "retry_after", "attempt", "payload") OVERRIDING SYSTEM VALUE SELECT "id", "retry_after", "attempt", "payload" FROM moved RETURNING "id";
