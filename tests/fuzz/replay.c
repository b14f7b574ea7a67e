/*
 * A fuzz target without libFuzzer, as a test: runs every file of its corpus,
 * then mutations of them from a fixed seed. Needs no clang.
 *
 * usage: replay-NAME CORPUS_DIRECTORY MUTATIONS [SEED]
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_FILES 256u
#define MAX_BYTES 20000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
	char *name;
	uint8_t *data;
	size_t size;
} files[MAX_FILES];
static unsigned n_files;

static char now_trying[320];
static uint64_t random_state = 0x9e3779b97f4a7c15u;

/* Names the failing input, whichever check fails. */
static void say_which(void)
{
	ssize_t n = write(STDERR_FILENO, now_trying, strlen(now_trying));

	(void)n;
}

void __asan_on_error(void);
void __asan_on_error(void)
{
	say_which();
}

static void on_abort(int sig)
{
	say_which();
}

static uint32_t random_below(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return n ? (uint32_t)(random_state >> 16) % n : 0;
}

static int load_input(const char *directory, const char *name)
{
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "rb");
	if (!file)
		return -errno;
	files[n_files].name = strdup(name);
	files[n_files].data = malloc(MAX_BYTES);
	if (!files[n_files].name || !files[n_files].data)
		abort();
	files[n_files].size = fread(files[n_files].data, 1, MAX_BYTES, file);
	fclose(file);
	n_files++;
	return 0;
}

static int load_all(const char *directory)
{
	struct dirent **names;
	int n = scandir(directory, &names, NULL, alphasort), err = 0;

	if (n < 0)
		return -errno;
	for (int i = 0; i < n; i++) {
		if (names[i]->d_name[0] != '.' && n_files < MAX_FILES && !err)
			err = load_input(directory, names[i]->d_name);
		free(names[i]);
	}
	free(names);
	return err;
}

/* Runs the target on a copy of exact size. */
static void try_one(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

/* Moves the end of the input, at `at`, by some bytes. */
static size_t grow_or_shrink(uint8_t *data, size_t size, size_t at)
{
	size_t n = 1 + random_below(8);

	if (random_below(2)) {
		if (size + n > MAX_BYTES)
			return size;
		memmove(data + at + n, data + at, size - at);
		for (size_t i = 0; i < n; i++)
			data[at + i] = (uint8_t)random_below(256);
		return size + n;
	}
	if (n > size - at)
		n = size - at;
	memmove(data + at, data + at + n, size - at - n);
	return size - n;
}

/* The end of another file in place of this one's. */
static size_t splice(uint8_t *data, size_t at)
{
	unsigned other = random_below(n_files);
	size_t from = random_below((uint32_t)files[other].size + 1);
	size_t n = files[other].size - from;

	if (n > MAX_BYTES - at)
		n = MAX_BYTES - at;
	memcpy(data + at, files[other].data + from, n);
	return at + n;
}

static size_t mutate(uint8_t *data, size_t size)
{
	static const uint8_t boundary[] = {0, 1, 0x7f, 0x80, 0xff, 4, 8, 16};
	size_t at = random_below((uint32_t)size + 1);

	switch (random_below(6)) {
	case 0:
		return grow_or_shrink(data, size, at);
	case 1:
		return splice(data, at);
	case 2:
		return at; /* cut off */
	case 3:
		if (at < size)
			data[at] = boundary[random_below(sizeof(boundary))];
		return size;
	case 4:
		if (at < size)
			data[at] ^= (uint8_t)(1u << random_below(8));
		return size;
	default:
		if (at < size)
			data[at] = (uint8_t)random_below(256);
		return size;
	}
}

int main(int argc, char **argv)
{
	static uint8_t data[MAX_BYTES + 8];
	unsigned long mutations;
	int err;

	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: %s CORPUS_DIRECTORY MUTATIONS [SEED]\n",
			argv[0]);
		return 2;
	}
	mutations = strtoul(argv[2], NULL, 10);
	if (argc == 4) /* an odd factor: none of them makes it zero */
		random_state *= 2 * strtoul(argv[3], NULL, 10) + 1;
	err = load_all(argv[1]);
	if (err < 0 || n_files == 0) {
		fprintf(stderr, "%s: %s\n", argv[1],
			err < 0 ? strerror(-err) : "no files");
		return 1;
	}
	signal(SIGABRT, on_abort);
	signal(SIGILL, on_abort);
	for (unsigned i = 0; i < n_files; i++) {
		snprintf(now_trying, sizeof(now_trying), "input: %s\n",
			 files[i].name);
		try_one(files[i].data, files[i].size);
	}
	for (unsigned long i = 0; i < mutations; i++) {
		unsigned which = random_below(n_files);
		size_t size = files[which].size;

		memcpy(data, files[which].data, size);
		for (unsigned k = 1 + random_below(4); k; k--)
			size = mutate(data, size);
		snprintf(now_trying, sizeof(now_trying),
			 "input: mutation %lu, of %s\n", i, files[which].name);
		try_one(data, size);
	}
	printf("%u files, %lu mutations\n", n_files, mutations);
	return 0;
}
