/* The campaign: random problems, each by every plan that the planner lists for it, against the naive schedule in double. */
#ifndef RECURVE_CAMPAIGN_H
#define RECURVE_CAMPAIGN_H

#include "planned.h"

/* Which of a call's arguments are left out, and what the second call adds to. */
typedef struct {
    bool dy, dfinal, dx, dinitial, dparameters, final; /* is NULL */
    bool accumulate;                                   /* the second call adds to dparameters */
    uint64_t tensors; /* bit i % 64 of it: the gradient of parameter i is left out, where parameters are separate */
} omission;

/* One problem; all of it follows from the device, the seed and the number. */
typedef struct {
    const char *device; /* "cpu" or "cuda" */
    uint64_t seed;
    int64_t number;
    config c;
    rcv_size sizes[2];
    char name[64];
    char *text; /* of a random cell; NULL: built in */
    rcv_dtype dtype;
    bool training, restart, measured; /* measured: also by the plan that the planner chooses by timing */
    bool separate;                    /* parameters and gradients are tensors apart */
    int64_t threads;
    rcv_array_type data_type, state_type, parameter_type, gradient_type; /* that plans declare */
    bool batch_major, device_lengths;
    int64_t most_steps, most_batch;       /* that plans are made for */
    int64_t between_steps, between_batch; /* of a call between two others; 0: there is none */
    omission left_out;
    random_source source; /* for what is drawn later: plans */
} campaign_case;

void draw_case(campaign_case *k, const char *device, uint64_t seed, int64_t number);
void drop_case(campaign_case *k);
void describe_case(const campaign_case *k, char *text, size_t room);

typedef struct {
    int64_t plans;     /* at most so many of a case, drawn at random; 0: all */
    const char *plan;  /* NULL, or the only one */
    int from;          /* plans before this one are left out */
    const char *fault; /* NULL, or KIND=PLAN: what to do wrong in plans whose string has PLAN in it */
} campaign_options;

/* Runs a case and writes lines to stdout, each flushed:
 *   case NUMBER DESCRIPTION
 *   plan INDEX PLAN        this plan is about to run
 *   passed | conditioned | refused SENTENCE | uncompared SENTENCE | failed SENTENCE
 *   done
 * conditioned: it passed, but some tensor only within what roundings of the type move the oracle itself. Whatever else is written is for people. On a GPU the process ends with CAMPAIGN_FAILED behind a failure, since the GPU's context may be
 * lost. Answers how many plans failed. */
enum { CAMPAIGN_FAILED = 3 };
int run_case(campaign_case *k, const campaign_options *options);

#endif
