/* Parses and applies lines that change a wire while it runs. */
#include "tests/wire/control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COMMANDS "both, a-to-b, b-to-a or counters"

void wire_control_init(struct wire_control *control, int fd)
{
	*control = (struct wire_control){.fd = fd};
}

static void fill_control(struct wire_control *control)
{
	struct pollfd ready = {.fd = control->fd, .events = POLLIN};
	size_t room = sizeof(control->buf) - 1 - control->len;
	ssize_t n;

	if (control->ended || room == 0 || poll(&ready, 1, 0) <= 0)
		return;
	n = read(control->fd, control->buf + control->len, room);
	if (n > 0)
		control->len += (size_t)n;
	else
		control->ended = n == 0 || errno != EINTR;
}

bool wire_control_next(struct wire_control *control,
		       char line[WIRE_CONTROL_LINE])
{
	const char *end;
	size_t len, taken;

	fill_control(control);
	end = memchr(control->buf, '\n', control->len);
	if (!end && control->len < sizeof(control->buf) - 1)
		return false;
	len = end ? (size_t)(end - control->buf) : control->len;
	taken = end ? len + 1 : len;
	memcpy(line, control->buf, len);
	line[len] = '\0';
	control->len -= taken;
	memmove(control->buf, control->buf + taken, control->len);
	return true;
}

static bool find_ends(const char *word, bool changes[WIRE_ENDS])
{
	bool both = strcmp(word, "both") == 0;

	changes[WIRE_A] = both || strcmp(word, "a-to-b") == 0;
	changes[WIRE_B] = both || strcmp(word, "b-to-a") == 0;
	return changes[WIRE_A] || changes[WIRE_B];
}

static int change(const char *words, struct wire_conf *conf, char *err,
		  size_t err_len)
{
	struct wire_conf changed = *conf;
	char copy[WIRE_CONTROL_LINE];
	struct opt_error error;

	snprintf(copy, sizeof(copy), "%s", words);
	if (wire_settings_apply(copy, &changed, &error) < 0) {
		snprintf(err, err_len, "'%s': expected %s", words,
			 error.expected);
		return -EINVAL;
	}
	if (!wire_setting_up_follows_down(&changed)) {
		snprintf(err, err_len, "'%s': expected up-at after down-at",
			 words);
		return -EINVAL;
	}
	*conf = changed;
	return 0;
}

int wire_control_parse(char *line, struct wire_conf conf[WIRE_ENDS],
		       struct wire_request *out, char *err, size_t err_len)
{
	char *words = strchr(line, ' ');
	struct wire_conf changed[WIRE_ENDS];
	int rc = 0;

	*out = (struct wire_request){0};
	if (strcmp(line, "counters") == 0) {
		out->counters = true;
		return 0;
	}
	if (words)
		*words++ = '\0';
	if (!find_ends(line, out->changes)) {
		snprintf(err, err_len, "'%s': expected " COMMANDS, line);
		return -EINVAL;
	}
	memcpy(changed, conf, sizeof(changed));
	for (int end = 0; rc == 0 && end < WIRE_ENDS; end++)
		if (out->changes[end])
			rc = change(words ? words : "", &changed[end], err,
				    err_len);
	if (rc == 0)
		memcpy(conf, changed, sizeof(changed));
	return rc;
}
