/*
 * Captures: both directions in the file, filters, bounds, counted drops, and
 * repeated captures. One link, a ring, returns frames to their sender. libpcap
 * reads the files.
 *
 * Includes the source, to inspect its state where a thread would change it.
 */
#include "dpdk_glue/pcap.c"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <dlfcn.h>
#include <netdb.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "dpdk_glue/port_priv.h"

static struct glue_port *port;
static bool count_queries; /* and answer none */
static unsigned n_queries;
static char error[512];
static char folder[] = "/tmp/coronet-pcap-XXXXXX";
static char path[64];

/* Recorded by a thread of glue_thread_start(). */
struct thread_notes {
	cpu_set_t cpus;
	sigset_t blocked;
};

/* Replaces the C library's, for libpcap too. */
__attribute__((visibility("default"))) int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
	    struct addrinfo **out)
{
	int (*next)(const char *, const char *, const struct addrinfo *,
		    struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");

	if (!count_queries)
		return next(node, service, hints, out);
	n_queries++;
	return EAI_NONAME;
}

static int first_cpu(void)
{
	cpu_set_t set;
	int cpu = 0;

	CPU_ZERO(&set);
	sched_getaffinity(0, sizeof(set), &set);
	while (!CPU_ISSET(cpu, &set))
		cpu++;
	return cpu;
}

static int open_port(void **state)
{
	static struct glue_link link;
	struct glue_eal_conf conf = {.links = &link,
				     .n_links = 1,
				     .lcore = first_cpu(),
				     .huge_off = true,
				     .mtu = 1500};
	struct glue_port_conf port_conf = {.mtu = 1500};

	if (!mkdtemp(folder) ||
	    glue_link_parse("ring:r0", &link, error, sizeof(error)) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/a.pcapng", folder);
	conf.mem_mib = 32 + glue_link_mem_mib(&link);
	if (glue_eal_start(&conf, error, sizeof(error)) < 0 ||
	    glue_port_open(0, &port_conf, &port, error, sizeof(error)) < 0) {
		fprintf(stderr, "%s\n", error);
		return -1;
	}
	return 0;
}

static int close_port(void **state)
{
	unlink(path);
	rmdir(folder);
	glue_port_close(port);
	glue_eal_stop();
	return 0;
}

static struct glue_pcap_conf conf_of(const char *filter)
{
	return (struct glue_pcap_conf){
		.path = path, .filter = filter, .max_bytes = 10 << 20};
}

static void start_capture(const struct glue_pcap_conf *conf)
{
	if (glue_pcap_start(conf, error, sizeof(error)) < 0)
		fail_msg("%s", error);
}

/*
 * Sends n frames of len bytes, whose last byte is i, and receives them again.
 */
static void send_frames(unsigned n, unsigned len)
{
	for (unsigned i = 0; i < n; i++) {
		struct glue_frame *f = glue_tx_alloc(port, len);
		struct glue_frame *back[GLUE_BURST];

		assert_non_null(f);
		memset(f->data, 0, len);
		memcpy(f->data, "\2\0\0\0\0\1\2\0\0\0\0\2\x88\xb5", 14);
		f->data[len - 1] = (uint8_t)i;
		glue_tx(port, f);
		glue_tx_flush(port);
		for (unsigned k = glue_rx_raw(port, back, GLUE_BURST); k > 0;
		     k--)
			glue_frame_free(back[k - 1]);
	}
}

static struct glue_pcap_status wait_for_end(void)
{
	static const struct timespec nap = {.tv_nsec = 1000000};
	struct glue_pcap_status status;

	for (glue_pcap_status(&status); status.end == GLUE_PCAP_RUNS;
	     glue_pcap_status(&status))
		nanosleep(&nap, NULL);
	return status;
}

static struct glue_pcap_status stop_capture(void)
{
	glue_pcap_stop();
	return wait_for_end();
}

/* Reads the file: how many packets, and the first's length. */
static unsigned in_file(unsigned *caplen, struct timeval *when)
{
	char text[PCAP_ERRBUF_SIZE];
	pcap_t *file = pcap_open_offline(path, text);
	struct pcap_pkthdr *header;
	const uint8_t *data;
	unsigned n = 0;
	int rc;

	if (!file)
		fail_msg("%s", text);
	while ((rc = pcap_next_ex(file, &header, &data)) == 1) {
		if (n++ == 0 && caplen)
			*caplen = header->caplen;
		if (when)
			*when = header->ts;
	}
	assert_int_equal(rc, PCAP_ERROR_BREAK); /* the end, and no error */
	pcap_close(file);
	return n;
}

static void test_both_directions_are_in_the_file(void **state)
{
	struct glue_pcap_conf conf = conf_of(NULL);
	struct glue_pcap_status status;
	struct timeval when;
	struct stat st;
	unsigned len;

	start_capture(&conf);
	glue_pcap_status(&status);
	assert_int_equal(status.end, GLUE_PCAP_RUNS);
	send_frames(10, 100);
	status = stop_capture();
	assert_int_equal(status.end, GLUE_PCAP_STOPPED);
	assert_int_equal(status.packets, 20);
	assert_int_equal(status.dropped, 0);
	assert_string_equal(status.path, path);
	assert_int_equal(in_file(&len, &when), 20);
	assert_int_equal(len, 100);
	assert_in_range(when.tv_sec, time(NULL) - 600, time(NULL) + 1);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, status.bytes);
	assert_int_equal(st.st_mode & 0777, 0600);
	send_frames(5, 100);
	assert_int_equal(in_file(NULL, NULL), 20);
}

static void test_filters_choose(void **state)
{
	static const struct {
		const char *filter;
		unsigned n;
	} cases[] = {
		{"", 20},
		{"ether proto 0x88b5", 20},
		{"arp or ip", 0},
		{"ether[99] = 3", 2},
		{"ether[99] & 1 = 0", 10},
		{"greater 101", 0},
		{"ether src 02:00:00:00:00:02 and not ip6", 20},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct glue_pcap_conf conf = conf_of(cases[i].filter);

		start_capture(&conf);
		send_frames(10, 100);
		assert_int_equal(stop_capture().packets, cases[i].n);
		assert_int_equal(in_file(NULL, NULL), cases[i].n);
	}
}

/* Filters that rte_bpf of DPDK 22.11 gets wrong, or crashes on. */
static void test_host_names_in_filters_are_refused(void **state)
{
	static const char *const right[] = {
		"host 10.9.0.1 and tcp port 80",
		"ip6 host fd00:9::1 or net 10.0.0.0/8",
		"ether host 02:00:00:00:00:fe",
		"tcp port http or portrange 1-1024",
		"len - 4 > 100 and ip[2:2]-20 != 0",
		"tcp[tcpflags] & (tcp-syn|tcp-fin) != 0 && ip proto \\tcp",
		"icmp[icmptype] = icmp-timxceed and not vlan 7",
		"less 100 || greater 0x20",
		"ether src 2-0-0-0-0-fe or ether dst 02.00.00.00.00.fe",
		"net 10.9 or host ::ffff:10.9.0.1",
	};
	static const char *const wrong[] = {
		"host gateway.example",
		"tcp and src peer1",
		"dst net office",
		"host 10.9.0.1 or backend",
		"host 3com.example",
		"host face",
		"host peer1:80",
		"host example.org:80",
		"host 1.be",
		"net 9a.de",
		"host 1.2.3.4.5",
		"host 10-9",
		"host icmp-probe.example.com",
		"host icmp6-probe",
		"host \\tcp",
		"src host \\10.9.0.1",
		"host \\*tcp",
		"host vxlan",
	};
	struct glue_pcap pcap = {0};

	for (size_t i = 0; i < RTE_DIM(right); i++) {
		if (compile_filter(&pcap, right[i], error, sizeof(error)) < 0)
			fail_msg("%s", error);
		pcap_freecode(&pcap.filter);
	}
	for (size_t i = 0; i < RTE_DIM(wrong); i++) {
		assert_int_equal(
			compile_filter(&pcap, wrong[i], error, sizeof(error)),
			-EINVAL);
		assert_non_null(strstr(error, "not looked up"));
	}
}

/* Even in place of a host, no word is a name to be queried. */
static void test_words_of_filters_are_not_queried(void **state)
{
	char filter[80], words[2048], *next = words, *word;
	struct bpf_program program;
	pcap_t *dead = pcap_open_dead(DLT_EN10MB, 65535);

	assert_non_null(dead);
	snprintf(words, sizeof(words), "%s", glue_filter_words);
	assert_string_equal(words, glue_filter_words);
	count_queries = true;
	while ((word = strsep(&next, " "))) {
		snprintf(filter, sizeof(filter), "host %s", word);
		if (pcap_compile(dead, &program, filter, 1, UINT32_MAX) == 0)
			pcap_freecode(&program);
		if (n_queries)
			fail_msg("libpcap queries '%s'", word);
	}
	pcap_compile(dead, &program, "host nowhere", 1, UINT32_MAX);
	count_queries = false;
	assert_int_not_equal(n_queries, 0); /* the replacement works */
	pcap_close(dead);
}

static void test_filters_on_tcp_flags(void **state)
{
	uint8_t syn[54] = {
		[12] = 8, [14] = 0x45, [23] = 6, [46] = 0x50, [47] = 2};
	static const char *const filters[] = {"tcp[13] = 2",
					      "tcp[tcpflags] & tcp-syn != 0"};
	struct rte_mbuf *m = rte_pktmbuf_alloc(port->pool);

	memcpy(rte_pktmbuf_append(m, sizeof(syn)), syn, sizeof(syn));
	for (unsigned i = 0; i < 2; i++) {
		struct glue_pcap pcap = {0};

		assert_int_equal(
			compile_filter(&pcap, filters[i], error, sizeof(error)),
			0);
		rte_pktmbuf_mtod(m, uint8_t *)[47] = 2;
		assert_true(filter_accepts(&pcap, m));
		rte_pktmbuf_mtod(m, uint8_t *)[47] = 16;
		assert_false(filter_accepts(&pcap, m));
		pcap_freecode(&pcap.filter);
	}
	rte_pktmbuf_free(m);
}

static void test_packets_are_bounded(void **state)
{
	struct glue_pcap_conf conf = conf_of(NULL);
	struct glue_pcap_status status;

	conf.max_packets = 7;
	start_capture(&conf);
	send_frames(20, 100);
	status = wait_for_end();
	assert_int_equal(status.end, GLUE_PCAP_FULL);
	assert_int_equal(status.packets, 7);
	assert_int_equal(in_file(NULL, NULL), 7);
}

static void test_bytes_are_bounded(void **state)
{
	for (uint64_t most = 1000; most < 3000; most += 97) {
		struct glue_pcap_conf conf = conf_of(NULL);
		struct glue_pcap_status status;
		struct stat st;

		conf.max_bytes = most;
		start_capture(&conf);
		send_frames(20, 200);
		status = wait_for_end();
		assert_int_equal(status.end, GLUE_PCAP_FULL);
		assert_int_equal(stat(path, &st), 0);
		assert_true((uint64_t)st.st_size <= most);
		assert_true((uint64_t)st.st_size + 300 > most);
		assert_int_equal(in_file(NULL, NULL), status.packets);
	}
}

static void test_frames_are_cut(void **state)
{
	struct glue_pcap_conf conf = conf_of(NULL);
	unsigned len;

	conf.snap_bytes = 33;
	start_capture(&conf);
	send_frames(3, 1000);
	stop_capture();
	assert_int_equal(in_file(&len, NULL), 6);
	assert_int_equal(len, 33);
}

/* A tag that a NIC has removed, with and without headroom for it. */
static void test_stripped_tag_is_in_the_file(void **state)
{
	static const uint8_t tag[] = {0x81, 0, 0x60, 5, 0x88, 0xb5};

	for (unsigned snap = 60; snap <= 64; snap += 4) {
		struct glue_pcap_conf conf = conf_of(NULL);
		struct rte_mbuf *m = rte_pktmbuf_alloc(port->pool);
		char text[PCAP_ERRBUF_SIZE];
		struct pcap_pkthdr header;
		const uint8_t *data;
		pcap_t *file;

		memcpy(memset(rte_pktmbuf_append(m, 60), 0, 60),
		       "\2\0\0\0\0\1\2\0\0\0\0\2\x88\xb5", 14);
		m->ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
		m->vlan_tci = 0x6005;
		conf.snap_bytes = snap;
		start_capture(&conf);
		glue_pcap_rx(glue_pcap_running(), 0, 0, &m, 1);
		assert_int_equal(stop_capture().packets, 1);
		rte_pktmbuf_free(m);
		file = pcap_open_offline(path, text);
		assert_non_null(file);
		data = pcap_next(file, &header);
		assert_non_null(data);
		assert_int_equal(header.caplen, snap);
		assert_int_equal(header.len, 64);
		assert_memory_equal(data + 12, tag, sizeof(tag));
		pcap_close(file);
	}
}

/* A port that appeared after the capture started. */
static void test_frames_from_an_unknown_port_are_dropped(void **state)
{
	struct glue_pcap_conf conf = conf_of(NULL);
	struct rte_mbuf *m = rte_pktmbuf_alloc(port->pool);
	struct glue_pcap_status status;

	memset(rte_pktmbuf_append(m, 60), 0, 60);
	start_capture(&conf);
	glue_pcap_rx(glue_pcap_running(), 1, 0, &m, 1);
	status = stop_capture();
	rte_pktmbuf_free(m);
	assert_int_equal(status.packets, 0);
	assert_int_equal(status.dropped, 1);
}

static void *note_cpus_and_signals(void *arg)
{
	struct thread_notes *notes = arg;

	pthread_getaffinity_np(pthread_self(), sizeof(notes->cpus),
			       &notes->cpus);
	pthread_sigmask(SIG_SETMASK, NULL, &notes->blocked);
	return NULL;
}

/* The port's thread is pinned. */
static void test_writer_stays_off_the_polling_cpu(void **state)
{
	struct thread_notes notes;
	pthread_t thread;

	assert_int_equal(glue_thread_start(&thread, "notes",
					   note_cpus_and_signals, &notes),
			 0);
	pthread_join(thread, NULL);
	if (CPU_COUNT(glue_eal_cpus()) > 1)
		assert_false(CPU_ISSET(glue_eal_lcore(0), &notes.cpus));
	assert_true(CPU_COUNT(&notes.cpus) > 0);
	assert_true(sigismember(&notes.blocked, SIGTERM));
}

/*
 * Without a writer, frames that the pool and the ring cannot hold are counted.
 */
static void test_dropped_frames_are_counted(void **state)
{
	struct glue_pcap *pcap = calloc(1, sizeof(*pcap));
	uint64_t kept;

	pcap->fd = -1;
	pcap->snap = 200;
	assert_int_equal(alloc_buffers(pcap, error, sizeof(error)), 0);
	start_clock(pcap);
	__atomic_store_n(&glue_pcap_now, pcap, __ATOMIC_RELEASE);
	send_frames(2000, 100);
	__atomic_store_n(&glue_pcap_now, NULL, __ATOMIC_RELEASE);
	kept = rte_ring_count(pcap->ring);
	assert_in_range(kept, WAITING / 2, WAITING);
	assert_int_equal(pcap->dropped, 4000 - kept);
	free_pcap(pcap);
}

static void test_full_file_ends_the_capture(void **state)
{
	struct glue_pcap_conf conf = conf_of(NULL);
	struct glue_pcap_status status;
	struct rlimit before, small;

	getrlimit(RLIMIT_FSIZE, &before);
	small = (struct rlimit){2000, before.rlim_max};
	setrlimit(RLIMIT_FSIZE, &small);
	signal(SIGXFSZ, SIG_IGN);
	start_capture(&conf);
	send_frames(30, 500);
	status = wait_for_end();
	setrlimit(RLIMIT_FSIZE, &before);
	assert_int_equal(status.end, GLUE_PCAP_FAILED);
	assert_true(status.error != 0);
	assert_in_range(status.packets, 2, 4); /* what fits into 2000 bytes */
	assert_int_equal(in_file(NULL, NULL), status.packets);
}

static void assert_refused(const struct glue_pcap_conf *conf, int code,
			   const char *named)
{
	assert_int_equal(glue_pcap_start(conf, error, sizeof(error)), code);
	if (!strstr(error, named))
		fail_msg("'%s' does not name '%s'", error, named);
	assert_null(glue_pcap_running());
}

static void test_wrong_configurations_are_refused(void **state)
{
	struct glue_pcap_conf conf = conf_of("tcp port");

	assert_refused(&conf, -EINVAL, "the filter 'tcp port'");
	conf = conf_of(NULL);
	conf.path = "/nonexistent/a.pcapng";
	assert_refused(&conf, -ENOENT, "/nonexistent/a.pcapng");
	conf.path = "/dev/null";
	assert_refused(&conf, -EINVAL, "'/dev/null' is not a plain file");
	conf.path = folder;
	assert_refused(&conf, -EISDIR, folder);
	conf.path = "";
	assert_refused(&conf, -EINVAL, "a path has");
	conf = conf_of(NULL);
	conf.max_bytes = 10;
	assert_refused(&conf, -EINVAL, "10 bytes are too few for");
	conf = conf_of(NULL);
	conf.snap_bytes = 9217;
	assert_refused(&conf, -EINVAL, "snap=9217");
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	conf = conf_of(NULL);
	assert_refused(&conf, -EINVAL, "not a plain file");
	unlink(path);
}

static void test_one_capture_runs_at_a_time(void **state)
{
	struct glue_pcap_conf conf = conf_of(NULL);

	for (unsigned i = 0; i < 5; i++) {
		start_capture(&conf);
		assert_int_equal(glue_pcap_start(&conf, error, sizeof(error)),
				 -EBUSY);
		send_frames(1, 60);
		assert_int_equal(stop_capture().packets, 2);
		glue_pcap_stop(); /* a second stop has no effect */
	}
	start_capture(&conf);
	glue_pcap_close();
	assert_int_equal(wait_for_end().end, GLUE_PCAP_STOPPED);
	glue_pcap_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_directions_are_in_the_file),
		cmocka_unit_test(test_filters_choose),
		cmocka_unit_test(test_host_names_in_filters_are_refused),
		cmocka_unit_test(test_words_of_filters_are_not_queried),
		cmocka_unit_test(test_filters_on_tcp_flags),
		cmocka_unit_test(test_packets_are_bounded),
		cmocka_unit_test(test_bytes_are_bounded),
		cmocka_unit_test(test_frames_are_cut),
		cmocka_unit_test(test_stripped_tag_is_in_the_file),
		cmocka_unit_test(test_frames_from_an_unknown_port_are_dropped),
		cmocka_unit_test(test_writer_stays_off_the_polling_cpu),
		cmocka_unit_test(test_dropped_frames_are_counted),
		cmocka_unit_test(test_full_file_ends_the_capture),
		cmocka_unit_test(test_wrong_configurations_are_refused),
		cmocka_unit_test(test_one_capture_runs_at_a_time),
	};

	return cmocka_run_group_tests_name("pcap", tests, open_port,
					   close_port);
}
