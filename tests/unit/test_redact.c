#include "ops/support/redact.h"
#include "tests/check.h"

#include <stdlib.h>

#include "ops/support/cleanup.h"

/* A line as it is given, and as it is to be logged; NULL: as it is. */
struct row {
	const char *line, *want;
};

static void check_rows(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const char *want = rows[i].want ? rows[i].want : rows[i].line;
		struct buffer out = {0};
		cleanup_free char *got = NULL;
		bool redacted = false;

		CHECK_RC(0, redact_line(&out, rows[i].line, &redacted));
		got = buffer_steal_string(&out);
		CHECK_STRING(want, got);
		CHECK_RC(rows[i].want != NULL, redacted);
	}
}

static void test_options_whose_name_says_so_lose_their_value(void)
{
	static const struct row rows[] = {
		{"tool --password hunter2 file", "tool --password *** file"},
		{"tool --password=hunter2", "tool --password=***"},
		{"tool --password 'two words' x", "tool --password '***' x"},
		{"tool --password=\"two words\" x", "tool --password=\"***\" x"},
		{"tool --db-passwd a --api-key b --token c",
			"tool --db-passwd *** --api-key *** --token ***"},
		{"tool -token abc", "tool -token ***"},
		{"java -Ddb.password=abc -jar x.jar", "java -Ddb.password=*** -jar x.jar"},
		{"keytool -storepass abc -list", "keytool -storepass *** -list"},
		{"gpg --batch --passphrase abc -d x", "gpg --batch --passphrase *** -d x"},
		{"kubectl create secret generic x --from-literal=password=abc",
			"kubectl create secret generic x --from-literal=password=***"},
		{"npm config set //r.example/:_authToken abc",
			"npm config set //r.example/:_authToken ***"},
		{"aws configure set aws_secret_access_key abc",
			"aws configure set aws_secret_access_key ***"},
		{"git -c http.accessToken=abc fetch", "git -c http.accessToken=*** fetch"},
	};

	check_rows(rows, array_size(rows));
}

static void test_options_of_known_programs_lose_their_value(void)
{
	static const struct row rows[] = {
		{"mysql -u root -phunter2 db", "mysql -u root -p*** db"},
		{"/usr/bin/mysqldump -phunter2 db", "/usr/bin/mysqldump -p*** db"},
		{"timeout 5 /usr/bin/mysql -phunter2 db", "timeout 5 /usr/bin/mysql -p*** db"},
		{"mysql -u docker -phunter2", "mysql -u docker -p***"},
		{"curl https://host/api/helm -u me:hunter2",
			"curl https://host/api/helm -u me:***"},
		{"sudo -u me curl -u me:hunter2 x", "sudo -u me curl -u me:*** x"},
		{"curl -b 'session=hunter2' x", "curl -b '***' x"},
		{"curl --cookie=session=hunter2 x", "curl --cookie=*** x"},
		{"sshpass -p hunter2 ssh box", "sshpass -p *** ssh box"},
		{"sshpass -phunter2 ssh box", "sshpass -p*** ssh box"},
		{"docker login -u me -p hunter2 reg.example",
			"docker login -u me -p *** reg.example"},
		{"true && sudo -E docker login -p hunter2", "true && sudo -E docker login -p ***"},
		{"curl -u me:hunter2 https://x.example", "curl -u me:*** https://x.example"},
		{"curl -ume:hunter2 https://x.example", "curl -ume:*** https://x.example"},
		{"curl --user me:hunter2 x; curl --user=me:hunter2 x",
			"curl --user me:*** x; curl --user=me:*** x"},
		{"redis-cli -a hunter2 ping", "redis-cli -a *** ping"},
		{"openssl enc -pass pass:hunter2", "openssl enc -pass pass:***"},
		{"smbclient //h/s -U me%hunter2", "smbclient //h/s -U me%***"},
		{"sh -c 'mysql -phunter2 db'", "sh -c 'mysql -p*** db'"},
		{"x=$(mysql -phunter2 db) y", "x=$(mysql -p*** db) y"},
	};

	check_rows(rows, array_size(rows));
}

static void test_variables_whose_name_says_so_lose_their_value(void)
{
	static const struct row rows[] = {
		{"GITHUB_TOKEN=abc gh pr list", "GITHUB_TOKEN=*** gh pr list"},
		{"export DB_PASSWORD='a b'", "export DB_PASSWORD='***'"},
		{"docker run -e API_SECRET=abc -e LANG=C image",
			"docker run -e API_SECRET=*** -e LANG=C image"},
		{"env AWS_SECRET_ACCESS_KEY=a/b+c aws s3 ls",
			"env AWS_SECRET_ACCESS_KEY=*** aws s3 ls"},
		{"MYSQL_PWD=abc mysql db", "MYSQL_PWD=*** mysql db"},
		{"PGPASSWORD=abc psql", "PGPASSWORD=*** psql"},
		{"SSHPASS=abc sshpass -e ssh box", "SSHPASS=*** sshpass -e ssh box"},
		{"echo \"PASSWORD=abc\" >> .env", "echo \"PASSWORD=***\" >> .env"},
		{"psql 'host=h user=me password=abc dbname=d'",
			"psql 'host=h user=me password=*** dbname=d'"},
		{"tool 'Server=h;Password=abc;X=1'", "tool 'Server=h;Password=***;X=1'"},
		{"accessToken=abc node x.js", "accessToken=*** node x.js"},
	};

	check_rows(rows, array_size(rows));
}

static void test_headers_and_urls_and_json_lose_their_secrets(void)
{
	static const struct row rows[] = {
		{"curl -H 'Authorization: Bearer abc.def' https://x.example",
			"curl -H 'Authorization: Bearer ***' https://x.example"},
		{"curl -H \"Authorization: Basic dXNlcjpwdw==\" x",
			"curl -H \"Authorization: Basic ***\" x"},
		{"curl -H'X-Api-Key: abc' x", "curl -H'X-Api-Key: ***' x"},
		{"curl --header 'PRIVATE-TOKEN: abc' x", "curl --header 'PRIVATE-TOKEN: ***' x"},
		{"curl -H 'Cookie: session=abc' x", "curl -H 'Cookie: ***' x"},
		{"curl -H 'Cookie: id=abc' -b id=abc x", "curl -H 'Cookie: ***' -b *** x"},
		{"docker run img curl -H 'Cookie: id=abc' x",
			"docker run img curl -H 'Cookie: ***' x"},
		{"echo Bearer abcdef1234567890", "echo Bearer ***"},
		{"tool 'x auth: Bearer abcdef1234567890'", "tool 'x auth: Bearer ***'"},
		{"wget --header='X-Auth-Token: abc' x", "wget --header='X-Auth-Token: ***' x"},
		{"git clone https://me:hunter2@host.example/r.git",
			"git clone https://me:***@host.example/r.git"},
		{"git clone https://abcdefghijklmnopqrstuvwxyz@host.example/r.git",
			"git clone https://***@host.example/r.git"},
		{"psql postgres://me:p@ss@db/x", "psql postgres://me:***@db/x"},
		{"curl 'https://x.example/a?user=me&access_token=abc&b=1'",
			"curl 'https://x.example/a?user=me&access_token=***&b=1'"},
		{"curl -d '{\"user\":\"me\",\"password\": \"a b\"}' x",
			"curl -d '{\"user\":\"me\",\"password\": \"***\"}' x"},
		{"curl -d \"{\\\"token\\\":\\\"abc\\\"}\" x",
			"curl -d \"{\\\"token\\\":\\\"***\\\"}\" x"},
	};

	check_rows(rows, array_size(rows));
}

static void test_keys_are_known_by_their_shape(void)
{
	static const struct row rows[] = {
		{"gh auth ghp_0123456789abcdefghijABCDEFGHIJ012345", "gh auth ghp_***"},
		{"x AKIAIOSFODNN7EXAMPLE y", "x AKIA*** y"},
		{"echo github_pat_11ABCDEFG0123456789_abcdef", "echo github_pat_***"},
		{"echo xoxb-123456789012-abcdefghij", "echo xoxb-***"},
		{"echo sk-proj-abcdefghij0123456789", "echo sk-***"},
		{"x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijklmno", "x eyJ***"},
		{"echo '-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----' >k",
			"echo '-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----' "
			">k"},
	};

	check_rows(rows, array_size(rows));
}

static void test_what_is_no_secret_stays(void)
{
	static const struct row rows[] = {
		{""},
		{"mkdir -p a/b && cp -p x y"},
		{"ssh -p 22 box; docker run -p 80:80 image"},
		{"mysql -u root -p db"},
		{"grep -rn password src | head -p"},
		{"git log --author=me --grep 'token: fix'"},
		{"PASSWORD=$PASSWORD DB_TOKEN=\"${TOKEN}\" make"},
		{"TOKEN=$(cat /run/secrets/token) make"},
		{"tool --password-stdin --token-file /run/t --max-tokens 512 --no-password me"},
		{"tool --password --verbose"},
		{"TOKENIZERS_PARALLELISM=false MAX_TOKENS=5 PASSWORD= python x.py"},
		{"PASSWORD_STORE_DIR=/x SECRET_NAME=y TOKEN_TTL=60 make"},
		{"docker build --secret id=aws,src=/x ."},
		{"ffmpeg -pass 1 in.mp4"},
		{"git clone https://host.example/r.git; git clone ssh://git@host.example/r.git"},
		{"git clone git@github.com:me/r.git"},
		{"test \"$token\" = x -o password == y"},
		{"PWD=/x OLD_PWD=/y ls"},
		{"curl -u me https://x.example"},
		{"echo bearer authentication, sk-learn, task-token-test"},
		{"sed -n 's/secret/public/p' file"},
		{"python3 -c 'print(\"a\", 1 == 2)'"},
		{"echo \"unterminated"},
		{"echo trailing\\"},
		{"caf\xe9 \xff --x=\xfe"},
	};

	check_rows(rows, array_size(rows));
}

static void test_words_are_whole(void)
{
	static const char *const words[] = {
		"tool", "--password", "two words", "sh", "-c", "A_TOKEN=x y", "a b", "-p", NULL};
	struct buffer out = {0};
	cleanup_free char *got = NULL;
	bool redacted = false;

	CHECK_RC(0, redact_words(&out, words, &redacted));
	got = buffer_steal_string(&out);
	CHECK_STRING("tool --password *** sh -c A_TOKEN=*** a b -p", got);
	CHECK(redacted);
}

/* The time grows with the length, not with its square. */
static void test_long_lines_take_no_long_time(void)
{
	static const char *const pieces[] = {"a", "-", "://", "\"", "a=", "-----BEGIN ", "'\"",
		"_-", "a.b-", "eyJ", "a/", " bearer", "a\\", "\\\"", "a:"};

	for (size_t i = 0; i < array_size(pieces); i++) {
		size_t size = strlen(pieces[i]), used = 0;
		cleanup_free char *line = malloc((1 << 18) + size + 1);
		cleanup_buffer struct buffer out = {0};
		bool redacted = false;

		while (used < 1 << 18) {
			memcpy(line + used, pieces[i], size);
			used += size;
		}
		line[used] = '\0';
		CHECK_RC(0, redact_line(&out, line, &redacted));
	}
}

TEST_MAIN("redact", TEST(test_options_whose_name_says_so_lose_their_value),
	TEST(test_options_of_known_programs_lose_their_value),
	TEST(test_variables_whose_name_says_so_lose_their_value),
	TEST(test_headers_and_urls_and_json_lose_their_secrets),
	TEST(test_keys_are_known_by_their_shape), TEST(test_what_is_no_secret_stays),
	TEST(test_words_are_whole), TEST(test_long_lines_take_no_long_time))
