/* Finds the ends of HTTP responses. */
#include "apps/load/http_answer.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "netstack/options/opt.h"

#define FIELD	   "content-length:"
#define FIELD_LEN  (sizeof(FIELD) - 1)
#define LENGTH_MAX (UINT64_C(1) << 62)

static int read_status(struct http_answer *answer)
{
	if (strncmp(answer->line, "HTTP/1.1 2", 10) != 0)
		return -EBADMSG;
	answer->has_status = true;
	return 0;
}

/* cut: the line has more bytes than were kept. */
static int read_field(struct http_answer *answer, bool cut)
{
	const char *value = answer->line + FIELD_LEN;

	if (strncasecmp(answer->line, FIELD, FIELD_LEN) != 0)
		return 0;
	value += strspn(value, " \t");
	if (cut || answer->has_length ||
	    opt_parse_number(value, 0, LENGTH_MAX, &answer->left) < 0)
		return -EBADMSG;
	answer->has_length = true;
	return 0;
}

/* Returns 1 at the empty line that ends the head, 0, or -EBADMSG. */
static int end_line(struct http_answer *answer)
{
	size_t len = answer->line_len;
	bool cut = len == HTTP_ANSWER_LINE;

	answer->line_len = 0;
	if (cut || (len && answer->line[len - 1] == '\r'))
		len--;
	answer->line[len] = '\0';
	if (!answer->has_status)
		return read_status(answer);
	if (len)
		return read_field(answer, cut);
	return answer->has_length ? 1 : -EBADMSG;
}

/* Takes bytes of the head: returns their number, or -EBADMSG. */
static long take_head(struct http_answer *answer, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		int rc;

		if (data[i] != '\n') {
			if (answer->line_len < HTTP_ANSWER_LINE)
				answer->line[answer->line_len++] = data[i];
			continue;
		}
		rc = end_line(answer);
		if (rc < 0)
			return rc;
		if (rc > 0) {
			answer->in_body = true;
			return (long)i + 1;
		}
	}
	return (long)len;
}

int http_answer_take(struct http_answer *answer, const void *data, size_t len)
{
	if (!answer->in_body) {
		long n = take_head(answer, data, len);

		if (n < 0)
			return (int)n;
		data = (const char *)data + n;
		len -= (size_t)n;
		if (!answer->in_body)
			return 0;
	}
	if (len > answer->left)
		return -EBADMSG;
	answer->left -= len;
	if (answer->left)
		return 0;
	*answer = (struct http_answer){0};
	return 1;
}
