/*
 * Any bytes as a configuration file: they are refused in one line that names
 * the file, or accepted; a second pass over the file yields the same options.
 */
#include <argp.h>
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <coronet/net.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Options that accept any value, since a refused value ends the program. */
static const struct argp_option options[] = {
	{"name", 1, "TEXT", 0, "", 0},
	{"loud", 2, NULL, 0, "", 0},
	{"addr", 3, "TEXT", 0, "", 0},
	{0},
};

static unsigned taken;

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	if (key < 1 || key > 3)
		return ARGP_ERR_UNKNOWN;
	assert((key == 2) == (arg == NULL));
	assert(!arg || !strchr(arg, '\n'));
	assert(strncmp(net_config_place(state, options[key - 1].name),
		       "--config '", 10) == 0);
	taken++;
	return 0;
}

/* The second pass yields the same options in the same order. */
static int take_again(void *arg, const char *name, const char *value,
		      const char *place)
{
	unsigned *again = arg;

	assert(strcmp(name, "loud") == 0 ? !value : value != NULL);
	assert(strncmp(place, "--config '", 10) == 0);
	++*again;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct argp argp = {.options = options,
					 .parser = parse_key};
	char path[64], *argv[] = {"x", "--config", path, NULL};
	struct net_opts opts;
	int fd = memfd_create("config", MFD_CLOEXEC), err;
	char error[sizeof(opts.error)];
	unsigned again = 0;
	size_t lines = 1;

	if (fd < 0 || size > 65536)
		return 0;
	assert(write(fd, data, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	net_opts_init(&opts);
	taken = 0;
	err = net_parse_args(&argp, 3, argv, &opts, NULL);
	assert(err == net_reread_args(&argp, 3, argv, take_again, &again, error,
				      sizeof(error)));
	assert(err ? strcmp(error, opts.error) == 0 : again == taken);
	close(fd);
	for (size_t i = 0; i < size; i++)
		lines += data[i] == '\n';
	assert(taken <= lines);
	if (err == 0)
		return 0;
	assert(strstr(opts.error, path) && !strchr(opts.error, '\n'));
	return 0;
}
