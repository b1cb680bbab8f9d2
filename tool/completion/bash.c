/* The script for bash: one table of values by verb and option, one of operands, one of options; and the function that reads them. */
#include "completion/completion.h"

#include <stdlib.h>
#include <string.h>

static const char *verb_name(const command *command) { return command->verb != NULL ? command->verb : ""; }

static void print_candidates(candidates found) {
    printf("takes=1");
    if (found.words != NULL) {
        printf(" words='%s'", found.words);
    }
    if (found.pattern != NULL) {
        printf(" pattern='%s'", found.pattern);
    }
    printf(" ;;\n");
    free(found.words);
}

static void print_value(const command *command, const option *option) {
    const char letter = option_letter(option), *alias = option_alias(option), *verb = verb_name(command);
    if (option->value == NULL) {
        return;
    }
    printf("    '%s --%s'", verb, option->name);
    if (alias != NULL) {
        printf(" | '%s --%s'", verb, alias);
    }
    if (letter != 0) {
        printf(" | '%s -%c'", verb, letter);
    }
    printf(") ");
    print_candidates(option_candidates(option));
}

static void print_values(const command *command, void *user) {
    (void)user;
    for (size_t g = 0; g < group_count(command); g++) {
        const option_group group = group_at(command, g);
        for (size_t i = 0; i < group.count; i++) {
            print_value(command, &group.options[i]);
        }
    }
}

static void print_operands(const command *command, void *user) {
    (void)user;
    for (size_t i = 0; i < command->operand_count; i++) {
        const bool is_repeated = command->last_count != NULL && i + 1 == command->operand_count;
        printf(is_repeated ? "    '%s '*) " : "    '%s %zu') ", verb_name(command), i);
        print_candidates(operand_candidates(command, i));
    }
}

static void print_options(const command *command, void *user) {
    (void)user;
    printf("    '%s') options='", verb_name(command));
    for (size_t g = 0; g < group_count(command); g++) {
        const option_group group = group_at(command, g);
        for (size_t i = 0; i < group.count; i++) {
            printf("%s--%s", g + i > 0 ? " " : "", group.options[i].name);
        }
    }
    printf("' ;;\n");
}

/* A function with one case for each line of a table. */
static void print_table(const char *function, const char *key, void (*print)(const command *, void *)) {
    printf("%s() {\n    case \"%s\" in\n", function, key);
    print(command_before_verb(), NULL);
    for (size_t i = 0; verb_at(i) != NULL; i++) {
        command_read_table(verb_at(i)->run, verb_at(i)->name, print, NULL);
    }
    printf("    esac\n}\n\n");
}

static const char functions[] =
    "# Files of the pattern and folders; all files where there is none of the pattern, and no word.\n"
    "_recurve_files() { # PATTERN CURRENT\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    if [[ $1 == / ]]; then\n"
    "        compgen -d -- \"$2\"\n"
    "    elif [[ $1 == '*' || (-z $words && -z $(compgen -f -X \"!$1\" -- \"$2\")) ]]; then\n"
    "        compgen -f -- \"$2\"\n"
    "    else\n"
    "        compgen -f -X \"!$1\" -- \"$2\"\n"
    "        compgen -d -- \"$2\"\n"
    "    fi\n"
    "}\n"
    "\n"
    "_recurve() {\n"
    "    local current=${COMP_WORDS[COMP_CWORD]} verb= operands=0 ended= option= before= i word\n"
    "    local takes= words= pattern= options=\n"
    "    COMPREPLY=()\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        takes=\n"
    "        if [[ -z $ended && $word == -- ]]; then\n"
    "            ended=1\n"
    "        elif [[ -z $ended && $word == -?* ]]; then\n"
    "            _recurve_value \"$verb\" \"$word\"\n"
    "            [[ -n $takes ]] || continue\n"
    "            [[ ${COMP_WORDS[i + 1]} == = ]] && ((i++)) # bash separates --option=value into three words\n"
    "            if ((i + 1 >= COMP_CWORD)); then\n"
    "                option=$word\n"
    "                [[ $current != = ]] || current=\n"
    "                break\n"
    "            fi\n"
    "            ((i++))\n"
    "        elif [[ -z $verb ]]; then\n"
    "            verb=$word\n"
    "        else\n"
    "            ((operands++))\n"
    "        fi\n"
    "    done\n"
    "    takes= words= pattern=\n"
    "    if [[ -z $option && -z $ended && $current == --*=* ]]; then\n"
    "        option=${current%%=*} before=${current%%=*}=\n"
    "        current=${current#*=}\n"
    "    fi\n"
    "    if [[ -n $option ]]; then\n"
    "        _recurve_value \"$verb\" \"$option\"\n"
    "    elif [[ -z $ended && $current == -* ]]; then\n"
    "        _recurve_options \"$verb\"\n"
    "        words=$options\n"
    "    elif [[ -z $verb || $verb == help ]]; then\n"
    "        words=$_recurve_verbs\n"
    "    else\n"
    "        _recurve_operand \"$verb\" $operands\n"
    "    fi\n"
    "    while IFS= read -r word; do\n"
    "        COMPREPLY+=(\"$before$word\")\n"
    "    done < <(\n"
    "        [[ -z $words ]] || compgen -W \"$words\" -- \"$current\"\n"
    "        [[ -z $pattern ]] || _recurve_files \"$pattern\" \"$current\"\n"
    "    )\n"
    "    [[ -z $pattern ]] || compopt -o filenames 2>/dev/null\n"
    "    return 0\n"
    "}\n"
    "\n"
    "complete -F _recurve recurve\n";

void print_bash_completion(void) {
    printf("# Completion of recurve %s in bash, printed by `recurve completion bash`.\n\n", rcv_version());
    printf("_recurve_verbs='help");
    for (size_t i = 0; verb_at(i) != NULL; i++) {
        printf(" %s", verb_at(i)->name);
    }
    printf("'\n\n# takes: the option takes a value; words, pattern: what it may be\n");
    print_table("_recurve_value", "$1 $2", print_values);
    print_table("_recurve_operand", "$1 $2", print_operands);
    print_table("_recurve_options", "$1", print_options);
    fputs(functions, stdout);
}
