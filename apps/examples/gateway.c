/*
 * A server in plain blocking C, with libraries that know nothing of coroutines.
 *
 * A client sends a line, gets an answer of a line, and is done:
 *   redis HOST PORT KEY    sets KEY to "value of KEY", gets it (hiredis)
 *   http URL               the first line that is there (libcurl)
 *   sql CONNINFO; QUERY    the first field of the first row (libpq)
 * Every socket is the stack's: the listener, clients, and those inside the
 * libraries. Each client has a coroutine with a stack of its own, as libraries
 * need much of it and pass pointers into it to other threads.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <curl/curl.h>
#include <hiredis/hiredis.h>
#include <libpq-fe.h>

#include <coronet/net.h>

#define PORT	    7000
#define ANSWER_MAX  1024
#define STACK_BYTES (256 * 1024)

static unsigned now, most, served; /* clients */

/* ---- requests of clients ---- */

static void ask_redis(char *args, char *answer)
{
	char host[64], key[256], value[300];
	redisReply *reply = NULL;
	redisContext *redis;
	int port;

	if (sscanf(args, "%63s %d %255s", host, &port, key) != 3) {
		strcpy(answer, "error: redis HOST PORT KEY");
		return;
	}
	snprintf(value, sizeof(value), "value of %s", key);
	redis = redisConnect(host, port);
	if (redis && !redis->err)
		reply = redisCommand(redis, "SET %s %s", key, value);
	if (reply) {
		freeReplyObject(reply);
		reply = redisCommand(redis, "GET %s", key);
	}
	snprintf(answer, ANSWER_MAX, "%s",
		 reply && reply->str ? reply->str
		 : redis	     ? redis->errstr
				     : "error: no memory");
	if (reply)
		freeReplyObject(reply);
	if (redis)
		redisFree(redis);
}

static size_t take_body(char *data, size_t size, size_t n, void *answer)
{
	size_t len = strlen(answer);

	snprintf((char *)answer + len, ANSWER_MAX - len, "%.*s",
		 (int)(size * n), data);
	return size * n;
}

static void ask_http(char *url, char *answer)
{
	CURL *curl = curl_easy_init();
	CURLcode code;

	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
	code = curl_easy_perform(curl);
	if (code != CURLE_OK)
		snprintf(answer, ANSWER_MAX, "error: %s",
			 curl_easy_strerror(code));
	answer[strcspn(answer, "\r\n")] = '\0';
	curl_easy_cleanup(curl);
}

static void ask_sql(char *args, char *answer)
{
	char *query = strchr(args, ';');
	PGresult *rows;
	PGconn *sql;

	if (!query) {
		strcpy(answer, "error: sql CONNINFO; QUERY");
		return;
	}
	*query++ = '\0';
	sql = PQconnectdb(args);
	rows = PQexec(sql, query);
	snprintf(answer, ANSWER_MAX, "%s",
		 PQntuples(rows) ? PQgetvalue(rows, 0, 0)
				 : PQerrorMessage(sql));
	answer[strcspn(answer, "\r\n")] = '\0';
	PQclear(rows);
	PQfinish(sql);
}

static void answer_line(char *line, char *answer)
{
	char *args = strchr(line, ' ');

	if (args)
		*args++ = '\0';
	answer[0] = '\0';
	if (args && strcmp(line, "redis") == 0)
		ask_redis(args, answer);
	else if (args && strcmp(line, "http") == 0)
		ask_http(args, answer);
	else if (args && strcmp(line, "sql") == 0)
		ask_sql(args, answer);
	else
		strcpy(answer, "error: expected redis, http or sql");
}

/* ---- clients ---- */

/* Reads up to the end of a line or of the stream; returns how many bytes. */
static size_t read_line(int fd, char *line, size_t size)
{
	size_t len = 0;

	while (len < size - 1 && !memchr(line, '\n', len)) {
		ssize_t n = read(fd, line + len, size - 1 - len);

		if (n <= 0)
			break;
		len += (size_t)n;
	}
	line[len] = '\0';
	line[strcspn(line, "\r\n")] = '\0';
	return len;
}

static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char line[1024], answer[ANSWER_MAX + 1];

	if (read_line(fd, line, sizeof(line)) > 0) {
		answer_line(line, answer);
		strcat(answer, "\n");
		if (write(fd, answer, strlen(answer)) < 0)
			perror("write");
	}
	close(fd);
	served++;
	now--;
	return NULL;
}

static int listen_at(uint16_t port)
{
	struct sockaddr_in any = {.sin_family = AF_INET,
				  .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof(any)) < 0 ||
	    listen(fd, 2048) < 0) {
		perror("listen");
		exit(1);
	}
	return fd;
}

static void *accept_all(void *arg)
{
	const struct coro_attr attr = {.name = "client",
				       .stack = CORO_STACK_PRIVATE,
				       .stack_size = STACK_BYTES};
	int listener = listen_at(PORT);

	printf("listening on 0.0.0.0:%d\n", PORT);
	fflush(stdout);
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0 && errno == ECANCELED)
			break; /* the stack stops */
		if (fd < 0)
			usleep(10000); /* out of descriptors, say: try later */
		else if (coro_spawn(coro_sched_self(), &attr, serve,
				    (void *)(intptr_t)fd, NULL) < 0)
			close(fd);
		else if (++now > most)
			most = now;
	}
	close(listener);
	return NULL;
}

int main(int argc, char **argv)
{
	struct net_stack *stack;
	struct rlimit files;
	int err;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	curl_global_init(CURL_GLOBAL_DEFAULT);
	err = net_stack_open_args(argc, argv, &stack);
	if (err == 0)
		err = net_spawn(stack, "accept", accept_all, NULL);
	if (err == 0) {
		net_stack_run(stack);
		printf("served %u, at most %u at a time, with %zu KiB of "
		       "stack\n",
		       served, most,
		       coro_name_high_water(coro_sched_self(), "client") >> 10);
		net_stack_close(stack);
	}
	return net_exit_status(err);
}
