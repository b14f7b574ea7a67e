/*
 * Files that are served: what of a folder is loaded, and what stays outside.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "apps/httpd/files.h"

static char folder[64], path[256];
static struct files files;

static const char *in_folder(const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void write_file(const char *name, const char *text)
{
	FILE *file = fopen(in_folder(name), "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static int make_folder(void **state)
{
	strcpy(folder, "/tmp/coronet-files-XXXXXX");
	if (!mkdtemp(folder))
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
	char command[128];

	files_free(&files);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static void expect(const char *at, const char *text)
{
	const struct file *file = files_find(&files, at, strlen(at));

	if (!text) {
		assert_null(file);
		return;
	}
	assert_non_null(file);
	assert_int_equal(file->len, strlen(text));
	assert_memory_equal(file->data, text, file->len);
}

static void test_files_of_a_folder_are_loaded(void **state)
{
	assert_int_equal(mkdir(in_folder("site/more"), 0755), 0);
	assert_int_equal(mkfifo(in_folder("site/fifo"), 0644), 0);
	assert_int_equal(files_load(&files, in_folder("site")), 0);
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

static void test_link_does_not_lead_out_of_the_folder(void **state)
{
	char absolute[128];

	link_to("../secret", "site/out.txt");
	link_to("/etc/passwd", "site/passwd");
	link_to("out.txt", "site/twice.txt");
	link_to("..", "site/up");
	snprintf(absolute, sizeof(absolute), "%s/site/note.txt", folder);
	link_to(absolute, "site/absolute.txt");
	assert_int_equal(files_load(&files, in_folder("site")), 0);
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
	assert_int_equal(files_load(&files, in_folder("site")), 0);
	assert_int_equal(files.n_outside, 0);
	expect("/same.txt", "note");
}

static void test_link_to_nothing_is_an_error(void **state)
{
	link_to("nothing", "site/broken.txt");
	assert_int_equal(files_load(&files, in_folder("site")), -ENOENT);
	assert_non_null(strstr(files.error, "broken.txt"));
}

static void test_root_itself_may_be_a_link(void **state)
{
	link_to("site", "root");
	link_to("secret", "one");
	assert_int_equal(files_load(&files, in_folder("root")), 0);
	expect("/note.txt", "note");
	files_free(&files);
	assert_int_equal(files_load(&files, in_folder("one")), 0);
	expect("/", "secret");
	expect("/one", "secret");
}

int main(void)
{
#define T(test_)                                                               \
	cmocka_unit_test_setup_teardown(test_, make_folder, remove_folder)
	const struct CMUnitTest tests[] = {
		T(test_files_of_a_folder_are_loaded),
		T(test_link_does_not_lead_out_of_the_folder),
		T(test_link_within_the_folder_is_followed),
		T(test_link_to_nothing_is_an_error),
		T(test_root_itself_may_be_a_link),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
