-- dead list ('a.dead',)
SELECT q."id", q."name", q."priority", q."retry_after", q."attempt", q."done", q."locked_until", q."payload" FROM (SELECT q."id", q."name", q."priority", q."retry_after", q."attempt", q."done", q."locked_until", q."payload" FROM (SELECT q."id", q."name", q."priority", q."retry_after", q."attempt", q."done", q."locked_until", q."payload" FROM "app"."mail_jobs" AS q WHERE q."name" = $1::text AND q."done" IS NULL AND q."locked_until" IS NULL OFFSET 0) AS q UNION ALL SELECT q."id", q."name", q."priority", q."retry_after", q."attempt", q."done", q."locked_until", q."payload" FROM (SELECT q."id", q."name", q."priority", q."retry_after", q."attempt", q."done", q."locked_until", q."payload" FROM "app"."mail_jobs" AS q WHERE q."name" = $1::text AND q."done" IS NULL AND q."locked_until" IS NOT NULL OFFSET 0) AS q) AS q ORDER BY q."id" LIMIT 50;

-- dead list ('a.dead', 7, datetime.datetime(2030, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))
SELECT q."id" FROM (SELECT q."id" FROM (SELECT q."id" FROM "app"."mail_jobs" AS q WHERE q."name" = $1::text AND q."done" IS NULL AND q."id" > $2::bigint AND q."retry_after" <= $3::timestamp with time zone AND q."locked_until" IS NULL OFFSET 0) AS q UNION ALL SELECT q."id" FROM (SELECT q."id" FROM "app"."mail_jobs" AS q WHERE q."name" = $1::text AND q."done" IS NULL AND q."id" > $2::bigint AND q."retry_after" <= $3::timestamp with time zone AND q."locked_until" IS NOT NULL OFFSET 0) AS q) AS q ORDER BY q."id" LIMIT 500;

-- dead list (7, 8)
SELECT q."id" FROM "app"."mail_jobs" AS q WHERE q."id" IN ($1::bigint, $2::bigint) ORDER BY q."id" LIMIT 2;

-- dead lock (7, 8, 'a.dead', '<now>')
SELECT q."id", q."name" FROM "app"."mail_jobs" AS q WHERE q."id" IN ($1::bigint, $2::bigint) AND q."name" = $3::text AND q."done" IS NULL AND (q."locked_until" IS NULL OR q."locked_until" <= $4::timestamp with time zone) FOR UPDATE OF q SKIP LOCKED;

-- dead lock (7, 'x.', '<now>')
SELECT q."id", q."name" FROM "app"."mail_jobs" AS q WHERE q."id" IN ($1::bigint) AND (char_length(q."name") >= 2 AND substr(q."name", 1, 2) = $2::text) AND q."done" IS NULL AND (q."locked_until" IS NULL OR q."locked_until" <= $3::timestamp with time zone) FOR UPDATE OF q SKIP LOCKED;

-- requeue ('a', '<now>', 7, 8)
UPDATE "app"."mail_jobs" SET "name" = $1::text, "attempt" = 1, "locked_until" = NULL, "retry_after" = CASE WHEN "retry_after" > $2::timestamp with time zone THEN $2::timestamp with time zone ELSE "retry_after" END WHERE "id" IN ($3::bigint, $4::bigint);

-- requeue check (7, 8)
SELECT "id" FROM "app"."jobs" WHERE "id" IN ($1::bigint, $2::bigint);

-- requeue insert ('<now>', 7, 8)
INSERT INTO "app"."jobs" ("id", "retry_after", "attempt", "locked_until", "payload") OVERRIDING SYSTEM VALUE SELECT "id", CASE WHEN "retry_after" > $1::timestamp with time zone THEN $1::timestamp with time zone ELSE "retry_after" END, 1, NULL, "payload" FROM "app"."mail_jobs" WHERE "id" IN ($2::bigint, $3::bigint);

-- purge (7, 8)
DELETE FROM "app"."mail_jobs" WHERE "id" IN ($1::bigint, $2::bigint);

-- purge (7, 8)
DELETE FROM "app"."mail_jobs" WHERE "id" IN ($1::bigint, $2::bigint);
