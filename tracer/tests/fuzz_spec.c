/* Fuzzing the parser of the operation list. Any read outside the list, and any list that is taken without what a launch
 * relies on, aborts. */
#include "../src/spec.c"

#include <assert.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
        struct spec spec;
        struct spec_error error;
        char *copy = malloc(size ? size : 1);

        assert(copy);
        memcpy(copy, bytes, size);
        if (!spec_parse(&spec, copy, size, &error)) {
                assert(spec.argc && spec.argv[spec.argc] == NULL && spec.envp[spec.env_count] == NULL);
                assert(spec.lower_count && spec.upper && spec.work && spec.cwd && spec.range_count);
        }
        spec_free(&spec);
        return 0;
}
