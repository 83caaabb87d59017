DROP TABLE IF EXISTS application_quotas;
