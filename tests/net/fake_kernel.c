/* dpdk_glue/kernel_tap.h without a kernel: two arrays of frames in memory. */
#include "tests/net/fake_kernel.h"

#include <stdio.h>
#include <string.h>

#define FD	77
#define ROOM	9216
#define REFUSED "fake-busy"

struct glue_kernel_tap_conf fake_kernel_conf;
struct glue_kernel_addr fake_kernel_addrs[64];
bool fake_kernel_full;
unsigned fake_kernel_open, fake_kernel_reads;

struct frames {
	uint8_t data[FAKE_KERNEL_MAX][ROOM];
	unsigned len[FAKE_KERNEL_MAX];
	unsigned head, tail;
};
static struct frames given, sends;

static unsigned pop_frame(struct frames *frames, void *data, unsigned room)
{
	unsigned at = frames->head % FAKE_KERNEL_MAX, len;

	if (frames->head == frames->tail)
		return 0;
	len = frames->len[at] < room ? frames->len[at] : room;
	memcpy(data, frames->data[at], len);
	frames->head++;
	return len;
}

unsigned fake_kernel_got(uint8_t *data, unsigned room)
{
	return pop_frame(&given, data, room);
}

void fake_kernel_send(const void *data, unsigned len)
{
	unsigned at = sends.tail++ % FAKE_KERNEL_MAX;

	memcpy(sends.data[at], data, len);
	sends.len[at] = len;
}

void fake_kernel_reset(void)
{
	given.head = given.tail = sends.head = sends.tail = 0;
	fake_kernel_full = false;
	fake_kernel_reads = 0;
}

int glue_kernel_tap_open(const struct glue_kernel_tap_conf *conf, int *fd,
			 char *err, size_t err_len)
{
	if (strcmp(conf->name, REFUSED) == 0) {
		snprintf(err, err_len, "%s is taken", conf->name);
		return -16; /* EBUSY */
	}
	fake_kernel_conf = *conf;
	memcpy(fake_kernel_addrs, conf->addrs,
	       conf->n_addrs * sizeof(*conf->addrs));
	fake_kernel_conf.addrs = fake_kernel_addrs;
	fake_kernel_open++;
	*fd = FD;
	return 0;
}

bool glue_kernel_tap_write(int fd, const struct iovec *pieces, unsigned n)
{
	unsigned at = given.tail % FAKE_KERNEL_MAX, len = 0;

	if (fd != FD || fake_kernel_full ||
	    given.tail - given.head == FAKE_KERNEL_MAX)
		return false;
	for (unsigned i = 0; i < n; i++) {
		memcpy(given.data[at] + len, pieces[i].iov_base,
		       pieces[i].iov_len);
		len += (unsigned)pieces[i].iov_len;
	}
	given.len[at] = len;
	given.tail++;
	return true;
}

unsigned glue_kernel_tap_read(int fd, void *buf, unsigned room)
{
	fake_kernel_reads++;
	return fd == FD ? pop_frame(&sends, buf, room) : 0;
}

void glue_kernel_tap_close(int fd)
{
	fake_kernel_open--;
}
