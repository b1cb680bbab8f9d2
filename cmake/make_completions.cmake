# Writes what completes the command in bash, zsh and fish, as the shells name it: TOOL prints it, into FOLDER.
set(ENV{ASAN_OPTIONS} detect_leaks=0) # of a build with sanitizers; the tests look for leaks
file(MAKE_DIRECTORY ${FOLDER})
foreach(pair bash:recurve zsh:_recurve fish:recurve.fish)
    string(REPLACE ":" ";" parts ${pair})
    list(GET parts 0 shell)
    list(GET parts 1 name)
    execute_process(COMMAND ${TOOL} completion ${shell} OUTPUT_FILE ${FOLDER}/${name} RESULT_VARIABLE result)
    if(NOT result EQUAL 0)
        message(FATAL_ERROR "${TOOL} completion ${shell} failed: ${result}")
    endif()
endforeach()
