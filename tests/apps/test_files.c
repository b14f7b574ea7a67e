/*
 * Files that are served: those of a folder are loaded, those outside are not.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "apps/httpd/files.h"
#include "tests/apps/in_folder.h"

static struct files files;
static off_t bad_bytes;	 /* length of the files that the disk cannot read */
static int bad_errno;	 /* what such a read fails with */
static ino_t bad_folder; /* that the disk cannot list */

/* In place of libc's. */
ssize_t pread(int fd, void *buf, size_t len, off_t at)
{
	struct stat st;

	if (bad_bytes && fstat(fd, &st) == 0 && st.st_size == bad_bytes) {
		errno = bad_errno;
		return -1;
	}
	return syscall(SYS_pread64, fd, buf, len, at);
}

/* In place of libc's. */
struct dirent *readdir(DIR *dir)
{
	struct dirent *(*next)(DIR * dir) = dlsym(RTLD_NEXT, "readdir");
	struct stat st;

	if (bad_folder && fstat(dirfd(dir), &st) == 0 &&
	    st.st_ino == bad_folder) {
		errno = EIO;
		return NULL;
	}
	return next(dir);
}

static int make_folder(void **state)
{
	if (in_folder_make() < 0)
		return -1;
	mkdir(in_folder("site"), 0755);
	write_file("secret", "secret");
	write_file("site/index.html", "index");
	write_file("site/note.txt", "note");
	write_file("site/.hidden", "hidden");
	return 0;
}

static int remove_folder(void **state)
{
	files_free(&files);
	return in_folder_remove();
}

static void expect(const char *at, const char *text)
{
	const struct file *file = files_find(&files, at, strlen(at));

	if (!text) {
		assert_null(file);
		return;
	}
	assert_non_null(file);
	assert_int_equal(file->own.len, strlen(text));
	assert_memory_equal(file->own.data, text, file->own.len);
}

static void test_files_in_a_folder_are_loaded(void **state)
{
	assert_int_equal(mkdir(in_folder("site/more"), 0755), 0);
	assert_int_equal(mkfifo(in_folder("site/fifo"), 0644), 0);
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	assert_int_equal(files.n, 3);
	assert_int_equal(files.n_outside, 0);
	expect("/", "index");
	expect("/index.html", "index");
	expect("/note.txt", "note");
	expect("/.hidden", NULL);
	expect("/more", NULL);
	expect("/secret", NULL);
}

static void link_to(const char *target, const char *name)
{
	assert_int_equal(symlink(target, in_folder(name)), 0);
}

static void test_link_out_of_the_folder_is_not_followed(void **state)
{
	char absolute[128];

	link_to("../secret", "site/out.txt");
	link_to("/etc/passwd", "site/passwd");
	link_to("out.txt", "site/twice.txt");
	link_to("..", "site/up");
	snprintf(absolute, sizeof(absolute), "%s/site/note.txt", folder);
	link_to(absolute, "site/absolute.txt");
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	assert_int_equal(files.n, 3);
	assert_int_equal(files.n_outside, 5);
	assert_true(files.outside[0] != '\0');
	expect("/out.txt", NULL);
	expect("/passwd", NULL);
	expect("/twice.txt", NULL);
}

static void test_link_within_the_folder_is_followed(void **state)
{
	link_to("note.txt", "site/same.txt");
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	assert_int_equal(files.n_outside, 0);
	expect("/same.txt", "note");
}

static void test_link_to_nothing_is_left_out(void **state)
{
	link_to("nothing", "site/broken.txt");
	link_to("two.txt", "site/one.txt");
	link_to("one.txt", "site/two.txt");
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	assert_int_equal(files.n, 3);
	assert_int_equal(files.n_broken, 3);
	assert_int_equal(files.n_outside, 0);
	assert_non_null(strstr(files.broken, ".txt"));
	expect("/note.txt", "note");
	expect("/broken.txt", NULL);
}

/* Run by root, the file without permissions is served. */
static void test_unreadable_files_are_left_out(void **state)
{
	assert_int_equal(mknod(in_folder("site/socket"), S_IFSOCK | 0600, 0),
			 0);
	assert_int_equal(mkfifo(in_folder("site/fifo"), 0600), 0);
	write_file("site/private.txt", "private");
	assert_int_equal(chmod(in_folder("site/private.txt"), 0), 0);
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	assert_int_equal(files.n_broken, geteuid() == 0 ? 2 : 3);
	expect("/note.txt", "note");
	expect("/socket", NULL);
	expect("/private.txt", geteuid() == 0 ? "private" : NULL);
}

static void test_files_on_a_failing_disk_are_left_out(void **state)
{
	static const int errors[] = {EIO, ENOTCONN, EUCLEAN, ETIMEDOUT, ENOKEY};

	write_file("site/bad.txt", "a bad sector");
	for (unsigned i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		bad_bytes = strlen("a bad sector");
		bad_errno = errors[i];
		assert_int_equal(files_load(&files, in_folder("site"), NULL),
				 0);
		bad_bytes = 0;
		assert_int_equal(files.n_broken, 1);
		assert_string_equal(files.broken, "bad.txt");
		expect("/note.txt", "note");
		expect("/bad.txt", NULL);
		files_free(&files);
	}
}

/* One that lies in the root is left out; the root itself is refused. */
static void test_folder_that_cannot_be_listed(void **state)
{
	struct stat st;

	assert_int_equal(mkdir(in_folder("site/bad"), 0755), 0);
	assert_int_equal(stat(in_folder("site/bad"), &st), 0);
	bad_folder = st.st_ino;
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	assert_int_equal(files.n_broken, 1);
	assert_string_equal(files.broken, "bad/");
	expect("/note.txt", "note");
	files_free(&files);
	assert_int_equal(stat(in_folder("site"), &st), 0);
	bad_folder = st.st_ino;
	assert_int_equal(files_load(&files, in_folder("site"), NULL), -EIO);
	bad_folder = 0;
	assert_non_null(strstr(files.error, "Input/output error"));
}

static void test_root_itself_may_be_a_link(void **state)
{
	link_to("site", "root");
	link_to("secret", "one");
	assert_int_equal(files_load(&files, in_folder("root"), NULL), 0);
	expect("/note.txt", "note");
	files_free(&files);
	assert_int_equal(files_load(&files, in_folder("one"), NULL), 0);
	expect("/", "secret");
	expect("/one", "secret");
}

/* ---- folders ---- */

static void make_folders(void)
{
	mkdir(in_folder("site/a"), 0755);
	mkdir(in_folder("site/a/b"), 0755);
	write_file("site/a/index.html", "index of a");
	write_file("site/a/b/deep.txt", "deep");
	write_file("site/a/b/.hidden", "hidden");
}

static void test_folders_within_the_folder(void **state)
{
	make_folders();
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	assert_int_equal(files.n, 6);
	expect("/a/", "index of a");
	expect("/a/index.html", "index of a");
	expect("/a/b/deep.txt", "deep");
	expect("/a", NULL);
	expect("/a/b/", NULL);
	expect("/a/b/.hidden", NULL);
	assert_string_equal(files_find_folder(&files, "/a", 2)->location,
			    "/a/");
	assert_non_null(files_find_folder(&files, "", 0)); /* "/" is there */
	assert_null(files_find_folder(&files, "/a/", 3));
	assert_null(files_find_folder(&files, "/a/b", 4));
	assert_null(files_find_folder(&files, "/note.txt", 9));
}

static void test_paths_are_found_by_their_length(void **state)
{
	char nul[] = "/note.txt\0", longest[2 * FILES_PATH_MAX];

	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	assert_non_null(files_find(&files, "/note.txtX", 9));
	assert_null(files_find(&files, "/note.txt", 8));
	assert_null(files_find(&files, nul, 10));
	assert_null(files_find(&files, "", 0));
	memset(longest, 'a', sizeof(longest));
	assert_null(files_find(&files, longest, sizeof(longest)));
	assert_null(files_find_folder(&files, longest, sizeof(longest)));
	assert_null(files_find_folder(&files, longest, FILES_PATH_MAX - 1));
}

static void test_links_between_folders(void **state)
{
	make_folders();
	link_to("a/b", "site/short");
	link_to("../note.txt", "site/a/up.txt");
	link_to("../../secret", "site/a/out.txt");
	link_to("../..", "site/a/outside");
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	expect("/short/deep.txt", "deep");
	expect("/a/up.txt", "note");
	expect("/a/out.txt", NULL);
	assert_int_equal(files.n_outside, 2);
	assert_non_null(strstr(files.outside, "a/out"));
}

static void test_link_to_its_own_folder_is_not_followed(void **state)
{
	make_folders();
	link_to(".", "site/same");
	link_to("../..", "site/a/b/up");
	link_to("..", "site/a/b/over");
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	assert_int_equal(files.n, 6);
	assert_int_equal(files.n_broken, 3);
}

static void test_folders_are_not_endlessly_deep(void **state)
{
	char name[256] = "site";

	for (unsigned i = 0; i < FILES_DEPTH_MAX; i++) {
		strcat(name, "/d");
		assert_int_equal(mkdir(in_folder(name), 0755), 0);
	}
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	files_free(&files);
	strcat(name, "/d");
	assert_int_equal(mkdir(in_folder(name), 0755), 0);
	assert_int_equal(files_load(&files, in_folder("site"), NULL), -ELOOP);
	assert_non_null(strstr(files.error, "folders are nested too deeply"));
}

static void test_path_of_maximum_length_is_loaded(void **state)
{
	char name[310] = "site/";

	memset(name + 5, 'x', 200);
	assert_int_equal(mkdir(in_folder(name), 0755), 0);
	strcat(name, "/");
	memset(name + 206, 'y', 93);
	name[299] = '\0';
	assert_int_equal(chdir(folder), 0);
	fclose(fopen(name, "w"));
	assert_int_equal(files_load(&files, "site", NULL), 0);
	assert_non_null(files_find(&files, name + 4, 295));
	files_free(&files);
	name[298] = '\0';
	strcat(name, "zzzzzzz");
	fclose(fopen(name, "w"));
	assert_int_equal(files_load(&files, "site", NULL), -ENAMETOOLONG);
	assert_int_equal(chdir("/"), 0);
}

static void test_location_of_a_folder_is_percent_encoded(void **state)
{
	mkdir(in_folder("site/a b%\xc3\xa4"), 0755);
	write_file("site/a b%\xc3\xa4/index.html", "odd");
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	assert_string_equal(
		files_find_folder(&files, "/a b%\xc3\xa4", 7)->location,
		"/a%20b%25%C3%A4/");
}

static void test_folder_named_as_an_index_is_a_folder(void **state)
{
	assert_int_equal(mkdir(in_folder("site/x"), 0755), 0);
	assert_int_equal(mkdir(in_folder("site/x/index.html"), 0755), 0);
	write_file("site/x/index.html/one", "one");
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	expect("/x/", NULL);
	expect("/x/index.html/one", "one");
}

/* ---- header fields of a file ---- */

static const struct file *find_file(const char *at)
{
	const struct file *file = files_find(&files, at, strlen(at));

	assert_non_null(file);
	return file;
}

static void set_time(const char *name, time_t time)
{
	const struct timespec times[2] = {{.tv_sec = time}, {.tv_sec = time}};

	assert_int_equal(utimensat(AT_FDCWD, in_folder(name), times, 0), 0);
}

static void test_file_has_validators_and_content_fields(void **state)
{
	const struct file *file;

	write_file("site/copy.txt", "note");
	set_time("site/note.txt", 784111777);
	set_time("site/copy.txt", time(NULL) + 86400);
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	file = find_file("/note.txt");
	assert_int_equal(file->own.fields_len, strlen(file->own.fields));
	assert_non_null(strstr(file->own.fields,
			       "Accept-Ranges: bytes\r\n"
			       "Content-Type: text/plain; charset=utf-8\r\n"
			       "Content-Length: 4\r\nETag: \""));
	assert_memory_equal(file->own.fields + file->own.validators, "ETag: \"",
			    7);
	assert_int_equal(file->own.coding_field, file->own.fields_len);
	assert_non_null(strstr(file->own.fields,
			       "\"\r\nLast-Modified: Sun, 06 Nov 1994 "
			       "08:49:37 GMT\r\n"));
	assert_null(strstr(file->own.fields, "Vary"));
	/* Equal bytes have equal tags, and no time is in the future. */
	assert_string_equal(file->own.etag, find_file("/copy.txt")->own.etag);
	assert_string_not_equal(file->own.etag, find_file("/")->own.etag);
	assert_true(find_file("/copy.txt")->modified <= time(NULL));
	assert_string_equal(find_file("/")->type, "text/html; charset=utf-8");
}

static void test_compressed_forms_are_loaded(void **state)
{
	const struct file *file;

	write_file("site/note.txt.gz", "gzip");
	write_file("site/note.txt.br", "brotli");
	write_file("site/index.html.br", "index, brotli");
	write_file("site/alone.gz", "alone");
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	assert_int_equal(files.n_stale, 0);
	file = find_file("/note.txt");
	assert_non_null(strstr(file->own.fields, "Vary: Accept-Encoding\r\n"));
	assert_null(strstr(file->own.fields, "Content-Encoding"));
	assert_memory_equal(file->gzip->data, "gzip", 4);
	assert_non_null(strstr(file->gzip->fields,
			       "Content-Type: text/plain; charset=utf-8\r\n"
			       "Content-Length: 4\r\n"));
	assert_non_null(strstr(file->gzip->fields,
			       "Vary: Accept-Encoding\r\n"
			       "Content-Encoding: gzip\r\n"));
	assert_string_equal(file->brotli->fields + file->brotli->coding_field,
			    "Content-Encoding: br\r\n");
	assert_string_not_equal(file->gzip->etag, file->own.etag);
	assert_null(find_file("/")->gzip);
	assert_memory_equal(find_file("/")->brotli->data, "index, brotli", 13);
	assert_non_null(find_file("/index.html")->brotli);
	assert_string_equal(find_file("/alone.gz")->type, "application/gzip");
	assert_null(find_file("/note.txt.gz")->gzip);
}

static void test_stale_compressed_form_is_not_used(void **state)
{
	write_file("site/note.txt.gz", "gzip");
	write_file("site/index.html.gz", "gzip");
	set_time("site/note.txt.gz", time(NULL) - 100);
	set_time("site/index.html.gz", time(NULL) - 100);
	assert_int_equal(files_load(&files, in_folder("site"), NULL), 0);
	assert_int_equal(files.n_stale, 2); /* the one of "/" is no third */
	assert_non_null(strstr(files.stale, ".gz"));
	assert_null(find_file("/note.txt")->gzip);
	assert_null(find_file("/")->gzip);
	assert_null(strstr(find_file("/note.txt")->own.fields, "Vary"));
}

/* ---- types ---- */

static void test_types_are_read_from_a_file(void **state)
{
	char types[128];

	write_file("types", "# comment\n"
			    "application/x-one one 1\n"
			    "\n"
			    "text/x-two\t\ttwo # second\n"
			    "text/x-crlf crlf\r\n"
			    "no-slash bad\n"
			    "a/b/c bad\n"
			    "/b bad\n"
			    "a/ bad\n"
			    "text/p;a=b bad\n"
			    "text/none\n"
			    "text/html-not html\n"
			    "text/last last");
	write_file("site/a.ONE", "");
	write_file("site/a.b.1", "");
	write_file("site/a.two", "");
	write_file("site/a.second", "");
	write_file("site/a.crlf", "");
	write_file("site/a.bad", "");
	write_file("site/a.last", "");
	write_file("site/one", "");
	write_file("site/end.", "");
	snprintf(types, sizeof(types), "%s/types", folder);
	assert_int_equal(files_load(&files, in_folder("site"), types), 0);
	assert_string_equal(find_file("/a.ONE")->type, "application/x-one");
	assert_string_equal(find_file("/a.b.1")->type, "application/x-one");
	assert_string_equal(find_file("/a.two")->type, "text/x-two");
	assert_string_equal(find_file("/a.crlf")->type, "text/x-crlf");
	assert_string_equal(find_file("/a.last")->type, "text/last");
	assert_string_equal(find_file("/index.html")->type,
			    "text/html; charset=utf-8");
#define UNKNOWN "application/octet-stream"
	assert_string_equal(find_file("/a.second")->type, UNKNOWN);
	assert_string_equal(find_file("/a.bad")->type, UNKNOWN);
	assert_string_equal(find_file("/one")->type, UNKNOWN);
	assert_string_equal(find_file("/end.")->type, UNKNOWN);
}

static void test_unreadable_types_are_refused(void **state)
{
	assert_int_equal(files_load(&files, in_folder("site"), "/nowhere"),
			 -ENOENT);
	assert_non_null(strstr(files.error, "--mime-types '/nowhere'"));
	assert_int_equal(files_load(&files, in_folder("site"), "/dev/zero"),
			 -EFBIG);
}

static void test_default_page_is_served(void **state)
{
	assert_int_equal(files_load(&files, NULL, NULL), 0);
	assert_int_equal(files.n, 1);
	assert_string_equal(find_file("/")->type, "text/html; charset=utf-8");
	assert_non_null(strstr(find_file("/")->own.fields, "Last-Modified: "));
}

int main(void)
{
#define T(test_)                                                               \
	cmocka_unit_test_setup_teardown(test_, make_folder, remove_folder)
	const struct CMUnitTest tests[] = {
		T(test_files_in_a_folder_are_loaded),
		T(test_link_out_of_the_folder_is_not_followed),
		T(test_link_within_the_folder_is_followed),
		T(test_link_to_nothing_is_left_out),
		T(test_unreadable_files_are_left_out),
		T(test_files_on_a_failing_disk_are_left_out),
		T(test_folder_that_cannot_be_listed),
		T(test_root_itself_may_be_a_link),
		T(test_folders_within_the_folder),
		T(test_paths_are_found_by_their_length),
		T(test_links_between_folders),
		T(test_link_to_its_own_folder_is_not_followed),
		T(test_folders_are_not_endlessly_deep),
		T(test_path_of_maximum_length_is_loaded),
		T(test_location_of_a_folder_is_percent_encoded),
		T(test_folder_named_as_an_index_is_a_folder),
		T(test_file_has_validators_and_content_fields),
		T(test_compressed_forms_are_loaded),
		T(test_stale_compressed_form_is_not_used),
		T(test_types_are_read_from_a_file),
		T(test_unreadable_types_are_refused),
		T(test_default_page_is_served),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
