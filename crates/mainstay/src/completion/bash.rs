//! The script for bash.

/// Bash splits words at `:` and `=`, which are part of endpoints and container ids. The function
/// joins what the line has without a space in between, and returns the part that bash completes.
pub const SCRIPT: &str = r#"_mainstay() {
    local IFS=$'\013'
    local rest=${COMP_LINE:0:COMP_POINT} trimmed word current prefix index
    local -a words=()
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        trimmed=${rest#"${rest%%[![:space:]]*}"}
        if [[ ${#words[@]} -gt 0 && $trimmed == "$rest" ]]; then
            words[${#words[@]}-1]+=$word
        else
            words+=("$word")
        fi
        rest=${trimmed#"$word"}
    done
    index=$((${#words[@]} - 1))
    current=${words[index]}
    current=${current#[\"\']}
    words[index]=$current
    COMPREPLY=($(
        _CLAP_IFS="$IFS" _CLAP_COMPLETE_INDEX="$index" MAINSTAY_COMPLETE=bash \
            mainstay -- "${words[@]}" 2>/dev/null
    )) || COMPREPLY=()
    # Options are offered once a dash is typed, or where nothing else can follow.
    if [[ -z $current ]]; then
        local -a values=()
        for word in "${COMPREPLY[@]}"; do
            [[ $word == -* ]] || values+=("$word")
        done
        [[ ${#values[@]} -eq 0 ]] || COMPREPLY=("${values[@]}")
    fi
    # Bash replaces only what follows the last of these.
    prefix=${current%"${current##*[:=]}"}
    if [[ -n $prefix && $COMP_WORDBREAKS == *:* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
    fi
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -F _mainstay mainstay
"#;
