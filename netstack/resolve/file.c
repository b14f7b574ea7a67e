/*
 * Small configuration files, read on the shard's thread when their time or size
 * has changed.
 */
#include "netstack/resolve/resolve_priv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS INT64_C(1000000000)

void net_file_clear(struct net_file *file)
{
	free(file->text);
	*file = (struct net_file){0};
}

static void read_text(struct net_file *file, int fd, size_t max)
{
	ssize_t n = 1;

	file->text = malloc(max);
	while (file->text && file->len < max && n > 0) {
		n = read(fd, file->text + file->len, max - file->len);
		file->len += n > 0 ? (size_t)n : 0;
	}
	if (file->len < max)
		return;
	while (file->len && file->text[file->len - 1] != '\n')
		file->len--;
}

static bool is_unchanged(const struct net_file *file, const struct stat *st)
{
	return file->text && file->size == st->st_size &&
	       file->changed.tv_sec == st->st_mtim.tv_sec &&
	       file->changed.tv_nsec == st->st_mtim.tv_nsec;
}

static bool read_changed(struct net_file *file, int fd, size_t max)
{
	bool was_there = file->text != NULL;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		net_file_clear(file);
		return was_there;
	}
	if (is_unchanged(file, &st))
		return false;
	net_file_clear(file);
	read_text(file, fd, max);
	file->changed = st.st_mtim;
	file->size = st.st_size;
	return true;
}

bool net_file_refresh(struct net_file *file, const char *path, size_t max)
{
	bool changed;
	int fd;

	if (net_here()->now_ns < file->look_ns)
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	changed = read_changed(file, fd, max);
	if (fd >= 0)
		close(fd);
	file->look_ns = net_here()->now_ns + LOOK_NS;
	return changed;
}

bool net_file_line(const char **at, const char *end, struct net_word *line)
{
	const char *stop;

	if (*at >= end)
		return false;
	stop = memchr(*at, '\n', (size_t)(end - *at));
	stop = stop ? stop : end;
	*line = (struct net_word){*at, (size_t)(stop - *at)};
	*at = stop + 1;
	return true;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

bool net_file_word(struct net_word *line, struct net_word *word)
{
	const char *at = line->text, *end = at + line->len;

	while (at < end && is_blank(*at))
		at++;
	word->text = at;
	while (at < end && !is_blank(*at) && *at != '#' && *at != ';')
		at++;
	word->len = (size_t)(at - word->text);
	*line = (struct net_word){at, (size_t)(end - at)};
	return word->len != 0;
}

bool net_word_addr(const struct net_word *word, struct net_addr *out)
{
	char text[NET_ADDR_TEXT_MAX];

	if (word->len >= sizeof(text) || word->text[0] == '[')
		return false;
	memcpy(text, word->text, word->len);
	text[word->len] = '\0';
	return net_addr_parse(text, 0, out) == 0 && out->port == 0;
}
