/*
 * Command lines of tests, written as a sentence.
 */
#pragma once

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define WORDS_MAX 48

struct words {
	char text[512];
	int argc;
	char *argv[WORDS_MAX + 1];
};

/* Splits a sentence at its spaces, behind the name of a program. */
static inline void words_split(struct words *words, char *program,
			       const char *sentence)
{
	char *word, *rest;

	snprintf(words->text, sizeof(words->text), "%s", sentence);
	words->argc = 0;
	words->argv[words->argc++] = program;
	for (word = strtok_r(words->text, " ", &rest); word;
	     word = strtok_r(NULL, " ", &rest)) {
		assert(words->argc < WORDS_MAX);
		words->argv[words->argc++] = word;
	}
	words->argv[words->argc] = NULL;
}
