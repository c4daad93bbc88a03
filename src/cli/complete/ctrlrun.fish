# Completion of ctrlrun for fish 3.4 and later.
function __ctrlrun_complete
    set -l before (commandline -opc)
    set -l current (string replace -r '^[\'"]' '' -- (commandline -ct))
    set -l said ($before[1] __complete fish -- $before "$current" 2>/dev/null)
    switch "$said[1]"
        case files
            __fish_complete_path "$current"
        case commands
            __fish_complete_command
        case words nospace
            test (count $said) -gt 1; and printf '%s\n' $said[2..-1]
    end
end
complete -c ctrlrun -f -a '(__ctrlrun_complete)'
