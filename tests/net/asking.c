/* Sends control commands from another thread while this one makes rounds. */
#include "tests/net/asking.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/control/control_priv.h"
#include "tests/net/peer.h"

static struct question {
	const char *request;
	uint64_t client;
	char *answer;
	_Atomic bool done;
} question;

static void *answer_body(void *arg)
{
	size_t len;

	net_control_client = question.client;
	if (strcmp(question.request, "page") == 0)
		question.answer = net_metrics_page();
	else if (question.request[0] != '/' && question.request[0])
		question.answer = net_http_answer(
			question.request, strlen(question.request), &len);
	else
		question.answer = net_control_answer(question.request);
	atomic_store(&question.done, true);
	return NULL;
}

static void start_asking(pthread_t *thread, uint64_t client,
			 const char *request)
{
	question = (struct question){.request = request, .client = client};
	pthread_create(thread, NULL, answer_body, NULL);
}

char *asked_in_vain(const char *request)
{
	pthread_t thread;

	start_asking(&thread, 0, request);
	pthread_join(thread, NULL);
	assert_non_null(question.answer);
	return question.answer;
}

char *asked_text(uint64_t client, const char *request,
		 void (*each)(unsigned round))
{
	pthread_t thread;
	unsigned n = 0;

	start_asking(&thread, client, request);
	while (!atomic_load(&question.done)) {
		if (each)
			each(n++);
		run_rounds(1);
	}
	pthread_join(thread, NULL);
	assert_non_null(question.answer);
	return question.answer;
}

cJSON *asked(uint64_t client, const char *request)
{
	char *text = asked_text(client, request, NULL), name[64];
	cJSON *all = cJSON_Parse(text), *value;

	assert_non_null(all);
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(request, ","),
		 request);
	value = cJSON_DetachItemFromObjectCaseSensitive(all, name);
	assert_non_null(value);
	cJSON_Delete(all);
	free(text);
	return value;
}
