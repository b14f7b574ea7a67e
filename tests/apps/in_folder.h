/* A temporary folder for a test, and files in it. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static char folder[64], path[256];

/* Returns the path of a name in the folder, valid until the next call. */
static inline const char *in_folder(const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static inline void write_file(const char *name, const char *text)
{
	FILE *file = fopen(in_folder(name), "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* Returns 0, or -1 if the folder cannot be made. */
static inline int in_folder_make(void)
{
	snprintf(folder, sizeof(folder), "/tmp/coronet-test-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

/* Removes the folder and its files. Returns 0, or rm's exit status. */
static inline int in_folder_remove(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}
