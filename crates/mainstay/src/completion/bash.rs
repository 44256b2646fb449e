//! The script for bash.

/// Bash splits words at `:` and `=`, which are part of endpoints and container ids. The function
/// joins what the line has without a space in between, and returns the part that bash completes.
///
/// Bash inserts a completion as it is. What the shell would expand is escaped: a file on a node may
/// be called `$(command)`.
pub const SCRIPT: &str = r#"_mainstay() {
    local rest=${COMP_LINE:0:COMP_POINT} trimmed word current quote='' prefix index
    local -a words=() found=() values=()
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
    case $current in
        [\"\']*) quote=${current:0:1} current=${current:1} ;;
        *) current=${current//\\/} ;;
    esac
    words[index]=$current
    COMPREPLY=()
    mapfile -t found < <(
        _CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX="$index" MAINSTAY_COMPLETE=bash \
            mainstay -- "${words[@]}" 2>/dev/null
    )
    # Options are offered once a dash is typed, or where nothing else can follow.
    if [[ -z $current ]]; then
        for word in "${found[@]}"; do
            [[ $word == -* ]] || values+=("$word")
        done
        [[ ${#values[@]} -eq 0 ]] || found=("${values[@]}")
    fi
    # Bash replaces only what follows the last of these.
    prefix=
    [[ $COMP_WORDBREAKS != *:* ]] || prefix=${current%"${current##*[:=]}"}
    for word in "${found[@]}"; do
        word=${word#"$prefix"}
        if [[ $word == *[!A-Za-z0-9_./:=,@%+-]* ]]; then
            [[ -z $quote ]] || continue
            printf -v word %q "$word"
        fi
        [[ -z $word ]] || COMPREPLY+=("$word")
    done
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -F _mainstay mainstay
"#;
