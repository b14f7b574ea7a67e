/*
 * Files that change while they are served: what is loaded again, and what stays
 * with the answers that have begun.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "apps/httpd/content.h"
#include "apps/httpd/site.h"
#include "tests/apps/in_folder.h"

#define NAPS_MAX 6000 /* of 10 ms, for what hangs */

static struct files files, again;

static int make_folder(void **state)
{
	if (in_folder_make() < 0)
		return -1;
	mkdir(in_folder("site"), 0755);
	write_file("site/index.html", "index");
	write_file("site/note.txt", "note");
	return 0;
}

static int remove_folder(void **state)
{
	files_free(&files);
	return in_folder_remove();
}

static const struct file *find_file(const struct files *in, const char *at)
{
	return files_find(in, at, strlen(at));
}

static void expect(const char *at, const char *text)
{
	const struct file *file = find_file(&files, at);

	assert_int_equal(file != NULL, text != NULL);
	if (!text)
		return;
	assert_int_equal(file->own.len, strlen(text));
	assert_memory_equal(file->own.data, text, file->own.len);
}

static void set_time(const char *name, time_t time)
{
	const struct timespec times[2] = {{.tv_sec = time}, {.tv_sec = time}};

	assert_int_equal(utimensat(AT_FDCWD, in_folder(name), times, 0), 0);
}

static void sleep_briefly(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

/* Waits until the change is noticed; the new content replaces the old. */
static void reload(void)
{
	int changed = 0;

	for (unsigned i = 0; changed == 0 && i < NAPS_MAX; i++) {
		changed = files_reload(&again, &files, in_folder("site"));
		if (changed == 0)
			sleep_briefly();
	}
	assert_int_equal(changed, 1);
	files_free(&files);
	files = again;
}

static void test_nothing_has_changed(void **state)
{
	const char *data;

	write_file("site/index.html.gz", "gzip");
	set_time("site/note.txt", time(NULL) + 86400);
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	data = find_file(&files, "/note.txt")->own.data;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(
			files_reload(&again, &files, in_folder("site")), 0);
	assert_ptr_equal(find_file(&files, "/note.txt")->own.data, data);
	expect("/note.txt", "note");
}

static void test_changed_files_are_loaded_again(void **state)
{
	char types[128], etag[32];

	write_file("types", "text/x-new new\n");
	snprintf(types, sizeof(types), "%s/types", folder);
	assert_int_equal(files_load(&files, in_folder("site"), types), 0);
	strcpy(etag, find_file(&files, "/note.txt")->own.etag);
	write_file("site/note.txt", "NOTE"); /* as long, in the same second */
	reload();
	expect("/note.txt", "NOTE");
	expect("/", "index");
	assert_string_not_equal(etag, find_file(&files, "/note.txt")->own.etag);
	write_file("site/made.new", "new");
	reload();
	assert_string_equal(find_file(&files, "/made.new")->type, "text/x-new");
	write_file("site/note.txt.gz", "gzip");
	reload();
	assert_non_null(find_file(&files, "/note.txt")->gzip);
	assert_non_null(
		strstr(find_file(&files, "/note.txt")->own.fields, "Vary"));
	unlink(in_folder("site/note.txt.gz"));
	unlink(in_folder("site/index.html"));
	reload();
	assert_null(find_file(&files, "/note.txt")->gzip);
	expect("/", NULL);
	set_time("site/note.txt", 784111777);
	reload();
	assert_int_equal(find_file(&files, "/note.txt")->modified, 784111777);
	assert_int_equal(files.n, 2);
}

/* Two writes that leave the same times behind: a disk of whole seconds. */
static void test_change_that_the_times_do_not_show(void **state)
{
	time_t now = time(NULL);

	set_time("site/note.txt", now);
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	write_file("site/note.txt", "NOTE");
	set_time("site/note.txt", now);
	reload();
	expect("/note.txt", "NOTE");
	assert_int_equal(find_file(&files, "/note.txt")->modified, now);
}

static void test_old_content_stays_while_it_is_used(void **state)
{
	const char *data;
	int changed = 0;

	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	data = find_file(&files, "/note.txt")->own.data;
	write_file("site/note.txt", "other");
	while (changed == 0)
		changed = files_reload(&again, &files, in_folder("site"));
	assert_int_equal(changed, 1);
	assert_memory_equal(data, "note", 4); /* ASan, if it is freed */
	/* Unchanged content is in memory once. */
	assert_ptr_equal(find_file(&again, "/")->own.data,
			 find_file(&files, "/")->own.data);
	files_free(&files);
	files = again;
	expect("/", "index");
}

/* A file that is more than may be served: the folder cannot be loaded. */
static void make_broken(void)
{
	write_file("site/broken", "");
	assert_int_equal(truncate(in_folder("site/broken"), INT64_C(2) << 30),
			 0);
}

static void test_reload_that_fails_leaves_all_as_it_was(void **state)
{
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	make_broken();
	assert_int_equal(files_reload(&again, &files, in_folder("site")),
			 -EFBIG);
	assert_non_null(strstr(again.error, "broken"));
	assert_int_equal(files_reload(&again, &files, in_folder("none")),
			 -ENOENT);
	expect("/note.txt", "note");
	unlink(in_folder("site/broken"));
	write_file("site/note.txt", "other");
	reload();
	expect("/note.txt", "other");
}

static void test_root_that_points_elsewhere_now(void **state)
{
	char root[128];

	mkdir(in_folder("next"), 0755);
	write_file("next/index.html", "next");
	assert_int_equal(symlink("site", in_folder("root")), 0);
	snprintf(root, sizeof(root), "%s/root", folder);
	assert_int_equal(files_load(&files, root, NULL), 0);
	assert_int_equal(symlink("next", in_folder("new")), 0);
	assert_int_equal(rename(in_folder("new"), root), 0);
	assert_int_equal(files_reload(&again, &files, root), 1);
	files_free(&files);
	files = again;
	expect("/", "next");
	expect("/note.txt", NULL);
}

/* ---- files that are being written to ---- */

static int open_note(struct stat *st)
{
	int fd = open(in_folder("site/note.txt"), O_RDONLY);

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, st), 0);
	return fd;
}

static void test_file_that_changes_while_it_is_read_is_read_again(void **state)
{
	struct content *content;
	struct stat st;
	int fd = open_note(&st);

	for (unsigned i = 0; i < 10; i++)
		sleep_briefly(); /* its last change is older than a tick of the
				    kernel */
	write_file("site/note.txt", "a longer note"); /* after its length */
	assert_int_equal(content_get(fd, &st, NULL, &content), 0);
	assert_int_equal(content->len, 13);
	assert_memory_equal(content->data, "a longer note", 13);
	content_drop(content);
	write_file("site/note.txt", "no");
	assert_int_equal(content_get(fd, &st, NULL, &content), 0);
	assert_int_equal(content->len, 2); /* and not what has been cut off */
	content_drop(content);
	close(fd);
}

/*
 * Right after a write another one might not show in the file's times. The test
 * repeats until the machine is fast enough for that.
 */
static void test_file_written_just_now_keeps_its_old_content(void **state)
{
	struct content *before, *content = NULL;
	struct stat st;
	int fd = open_note(&st);

	assert_int_equal(content_get(fd, &st, NULL, &before), 0);
	for (unsigned i = 0; content != before && i < NAPS_MAX; i++) {
		content_drop(content);
		write_file("site/note.txt", "other");
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(content_get(fd, &st, before, &content), 0);
	}
	assert_ptr_equal(content, before);
	assert_memory_equal(content->data, "note", 4);
	content_drop(content);
	content_drop(before);
	close(fd);
}

/*
 * Two writes within a tick leave equal times; the test sets that state
 * directly.
 */
static void test_file_with_ambiguous_times_is_read_again(void **state)
{
	struct content *before, *content;
	struct stat st;
	int fd = open_note(&st);

	assert_int_equal(content_get(fd, &st, NULL, &before), 0);
	assert_false(before->settled); /* it was made just now */
	before->data[0] = 'N';
	assert_int_equal(content_get(fd, &st, before, &content), 0);
	assert_memory_equal(content->data, "note", 4);
	content_drop(content);
	before->settled = true;
	assert_int_equal(content_get(fd, &st, before, &content), 0);
	assert_ptr_equal(content, before); /* no need to read */
	content_drop(content);
	content_drop(before);
	close(fd);
}

/* ---- shards ---- */

static struct site_loader loader;
static char said[1024];
static unsigned lines;
static pthread_mutex_t saying = PTHREAD_MUTEX_INITIALIZER;

static void note_line(const char *line)
{
	pthread_mutex_lock(&saying);
	snprintf(said, sizeof(said), "%s", line);
	lines++;
	pthread_mutex_unlock(&saying);
}

static struct site *await_next(void)
{
	struct site *next = NULL;

	for (unsigned i = 0; !next && i < NAPS_MAX; i++) {
		site_ask(&loader);
		sleep_briefly();
		next = site_take_next(&loader);
	}
	assert_non_null(next);
	return next;
}

/* Returns the number of log lines; *has: whether the last one contains part. */
static unsigned lines_said(const char *part, bool *has)
{
	unsigned n;

	pthread_mutex_lock(&saying);
	n = lines;
	*has = n && strstr(said, part);
	pthread_mutex_unlock(&saying);
	return n;
}

/* Waits for a line with part; returns the number of lines by then. */
static unsigned await_line(const char *part)
{
	for (unsigned i = 0; i < NAPS_MAX; i++) {
		bool has;
		unsigned n = lines_said(part, &has);

		if (has)
			return n;
		site_ask(&loader);
		sleep_briefly();
	}
	fail_msg("'%s' is not said", part);
	return 0;
}

/* Waits until the loader has finished another scan. */
static void await_sites(unsigned n)
{
	for (unsigned i = 0; i < NAPS_MAX; i++) {
		int asked = 1;

		site_ask(&loader);
		while (asked)
			sem_getvalue(&loader.asked, &asked);
		sleep_briefly();
		if (loader.sites == n)
			return;
	}
	fail_msg("%u sites, not %u", loader.sites, n);
}

static void test_answers_keep_the_site_that_they_began_with(void **state)
{
	struct site_here a = {.shard = 0}, b = {.shard = 1};
	struct site *first, *second;
	struct site_share *share;
	char root[128];

	snprintf(root, sizeof(root), "%s/site", folder);
	assert_int_equal(site_open(&loader, root, NULL, note_line), 0);
	site_set_shards(&loader, 2);
	assert_int_equal(site_start(&loader), 0);
	site_use(&a, loader.newest);
	site_use(&b, loader.newest);
	first = site_get(&a);
	assert_ptr_equal(site_get(&a), first);
	site_put(&a, first);
	write_file("site/note.txt", "other");
	second = await_next();
	await_line("have changed");
	assert_ptr_not_equal(second, first);
	site_use(&a, second);
	site_use(&b, second);
	await_sites(2); /* one answer of the first shard is in progress */
	assert_memory_equal(find_file(&first->files, "/note.txt")->own.data,
			    "note", 4);
	assert_ptr_equal(site_get(&a), second);
	site_put(&a, second);
	site_put(&a, first);
	await_sites(1);
	assert_memory_equal(find_file(&a.site->files, "/note.txt")->own.data,
			    "other", 5);
	/* Lent bytes stay after the answer has ended. */
	first = site_get(&b);
	share = site_lend(&b, first);
	site_put(&b, first);
	write_file("site/note.txt", "lent");
	second = await_next();
	site_use(&a, second);
	site_use(&b, second);
	await_sites(2);
	site_give_back(share);
	await_sites(1);
	/* A site that one shard has not adopted yet stays as well. */
	write_file("site/note.txt", "third");
	site_use(&a, await_next());
	await_sites(2);
	site_use(&b, a.site);
	await_sites(1);
	site_close(&loader);
}

static void test_error_is_logged_once(void **state)
{
	struct site_here here = {0};
	char root[128];
	unsigned before;
	bool has;

	snprintf(root, sizeof(root), "%s/site", folder);
	assert_int_equal(site_open(&loader, root, NULL, note_line), 0);
	site_set_shards(&loader, 1);
	assert_int_equal(site_start(&loader), 0);
	site_use(&here, loader.newest);
	make_broken();
	before = await_line("the previous version is served");
	for (unsigned i = 0; i < 5; i++)
		await_sites(1);
	assert_int_equal(lines_said("", &has), before);
	unlink(in_folder("site/broken"));
	write_file("site/note.txt", "other");
	site_use(&here, await_next());
	site_close(&loader);
	site_close(&loader); /* again: harmless */
	assert_int_equal(site_open(&loader, "/nowhere", NULL, note_line),
			 -ENOENT);
	assert_non_null(strstr(loader.error, "'/nowhere'"));
}

/* A dangling link is logged once, and other files are still served. */
static void test_link_to_nothing_while_served(void **state)
{
	struct site_here here = {0};
	char root[128];
	unsigned before;
	bool has;

	snprintf(root, sizeof(root), "%s/site", folder);
	assert_int_equal(symlink("nothing", in_folder("site/first")), 0);
	assert_int_equal(site_open(&loader, root, NULL, note_line), 0);
	assert_int_equal(loader.newest->files.n_broken, 1);
	site_set_shards(&loader, 1);
	assert_int_equal(site_start(&loader), 0);
	site_use(&here, loader.newest);
	before = lines_said("", &has);
	for (unsigned i = 0; i < 5; i++)
		await_sites(1);
	assert_int_equal(lines_said("", &has), before); /* the caller has */
	assert_int_equal(symlink("nothing", in_folder("site/second")), 0);
	before = await_line("2 names");
	write_file("site/new.txt", "new");
	site_use(&here, await_next());
	assert_non_null(find_file(&here.site->files, "/new.txt"));
	assert_null(find_file(&here.site->files, "/second"));
	assert_int_equal(lines_said("", &has), before + 1); /* it has changed */
	site_close(&loader);
}

#define T(test_)                                                               \
	cmocka_unit_test_setup_teardown(test_, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_nothing_has_changed),
		T(test_changed_files_are_loaded_again),
		T(test_change_that_the_times_do_not_show),
		T(test_old_content_stays_while_it_is_used),
		T(test_reload_that_fails_leaves_all_as_it_was),
		T(test_root_that_points_elsewhere_now),
		T(test_file_that_changes_while_it_is_read_is_read_again),
		T(test_file_written_just_now_keeps_its_old_content),
		T(test_file_with_ambiguous_times_is_read_again),
		T(test_answers_keep_the_site_that_they_began_with),
		T(test_error_is_logged_once),
		T(test_link_to_nothing_while_served),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
