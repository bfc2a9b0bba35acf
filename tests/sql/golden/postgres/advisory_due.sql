-- claim candidates
SELECT found.id, found.key FROM ((SELECT * FROM (SELECT q."id", concat(q."account"), q."due" FROM "ledger_jobs" AS q WHERE q."due" IS NULL ORDER BY q."due", q."id" OFFSET 0) AS ready(id, key, due) WHERE pg_try_advisory_xact_lock_shared(hashtextextended(ready.key COLLATE "C", 0)) LIMIT 4) UNION ALL (SELECT * FROM (SELECT q."id", concat(q."account"), q."due" FROM "ledger_jobs" AS q WHERE q."due" <= $1::timestamp with time zone ORDER BY q."due", q."id" OFFSET 0) AS ready(id, key, due) WHERE pg_try_advisory_xact_lock_shared(hashtextextended(ready.key COLLATE "C", 0)) LIMIT 4)) AS found ORDER BY found.due NULLS FIRST, found.id LIMIT 4;

-- claim lock
SELECT pg_try_advisory_lock(hashtextextended($1::text COLLATE "C", 0));

-- claim
SELECT q."id", q."account", q."due" FROM "ledger_jobs" AS q WHERE q."id" = $1::bigint AND (q."due" IS NULL OR q."due" <= $2::timestamp with time zone) AND concat(q."account") = $3::text;

-- unlock
SELECT pg_advisory_unlock(hashtextextended($1::text COLLATE "C", 0));

-- finish
DELETE FROM "ledger_jobs" AS q WHERE q."id" = $1::bigint RETURNING q."id";

-- postpone
UPDATE "ledger_jobs" AS q SET "due" = $2::timestamp with time zone WHERE q."id" = $1::bigint RETURNING q."id";

-- move
WITH moved AS (DELETE FROM "ledger_jobs" AS q WHERE q."id" = $1::bigint RETURNING q."id", q."account", q."due") INSERT INTO "app"."dead" ("id", "account", "due") OVERRIDING SYSTEM VALUE SELECT "id", "account", "due" FROM moved RETURNING "id";
