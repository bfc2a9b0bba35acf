-- claim lock
SELECT ready.id, ready.key FROM ((SELECT q."id", concat(q."account") FROM "ledger_jobs" AS q WHERE q."id" <> ALL($1::bigint[]) AND q."due" IS NULL ORDER BY q."due", q."id" LIMIT (SELECT NULL::bigint)) UNION ALL (SELECT q."id", concat(q."account") FROM "ledger_jobs" AS q WHERE q."id" <> ALL($1::bigint[]) AND q."due" <= $2::timestamp with time zone ORDER BY q."due", q."id" LIMIT (SELECT NULL::bigint))) AS ready(id, key) WHERE pg_try_advisory_lock(hashtextextended(ready.key COLLATE "C", 0)) LIMIT 1;

-- claim lock
SELECT ready.id, ready.key FROM ((SELECT q."id", concat(q."account") FROM "ledger_jobs" AS q WHERE q."id" <> ALL($1::bigint[]) AND q."due" IS NULL ORDER BY q."due", q."id" LIMIT (SELECT NULL::bigint)) UNION ALL (SELECT q."id", concat(q."account") FROM "ledger_jobs" AS q WHERE q."id" <> ALL($1::bigint[]) AND q."due" <= $2::timestamp with time zone ORDER BY q."due", q."id" LIMIT (SELECT NULL::bigint))) AS ready(id, key) WHERE pg_try_advisory_lock(hashtextextended(ready.key COLLATE "C", 0)) LIMIT 1;

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
