# Sourced by scripts/guest. Cuts the power at random moments, again and again, on the same pools.
# shellcheck shell=bash
#
# Each boot verifies what was acknowledged before the last cut, and works on until the next one: on
# one pool through the library, on the other through the mount, in turns. The moment is the seed's:
# some time after a phase of the boot has begun (format, recovery, mount, work), or a number of
# acknowledgements, of all or of files on the mount, which are fewer. Every cut has the seed after
# that of the one before it, so a run goes on where another one ended. scripts/guest-cuts-init is
# what runs inside.

# Longest time from the beginning of a phase to the cut, milliseconds.
phase_ms=2500
# Most acknowledgements of one boot, and files on the mount among them.
acks_max=200
files_max=40

# plan SEED sets the moment of a cut: phase and delay_ms, or acks or files and how many.
plan() {
    local phases=(format recovery recovery mount work work acks acks files files)
    RANDOM=$(($1 % 32768))
    # The first number after a seed says little but the seed.
    : "$RANDOM"
    phase=${phases[RANDOM % ${#phases[@]}]}
    delay_ms=$((RANDOM % phase_ms))
    acks=$((1 + RANDOM % acks_max))
    [[ $phase != files ]] || acks=$((1 + acks * files_max / acks_max))
    mode=$((RANDOM % 2))
    formatted_anew=''
    if [[ $phase == format ]]; then
        formatted_anew=dax
        ((RANDOM % 2)) || formatted_anew=devdax
    fi
}

# Takes over what the guest says of a pool: that it is made, or what is acknowledged.
take_word() {
    local pool=$1 word=$2
    case $word in
        formatted) known[$pool]=empty ;;
        # One of which nothing is acknowledged shows nothing.
        verified) [[ ${known[$pool]} != *:* ]] || verified=$((verified + 1)) ;;
        "ack "*)
            known[$pool]=${word#ack }
            acknowledged=$((acknowledged + 1))
            [[ $phase == files && $word != "ack mount:"* ]] || here=$((here + 1))
            ;;
    esac
}

# follow_cut LOG: reads the serial line until the planned moment, at which the power is cut. With
# the phase `end` nothing is cut.
follow_cut() {
    local line outcome="it ended without a word" until='' wait_s now status
    here=0
    while true; do
        wait_s=$silence_s
        if [[ -n $until ]]; then
            now=$((${EPOCHREALTIME/./} / 1000))
            ((now < until)) || { outcome=cut && break; }
            printf -v wait_s '%d.%03d' $(((until - now) / 1000)) $(((until - now) % 1000))
        fi
        status=0
        read -r -t "$wait_s" line <&3 || status=$?
        if ((status > 128)); then
            [[ -n $until ]] && outcome=cut || outcome="it hangs"
            break
        fi
        ((status == 0)) || break
        line=${line%$'\r'}
        echo "$line" >>"$1"
        case $line in
            "guest: FAILED"*) outcome=$line && break ;;
            "guest: boot cuts passed") outcome=passed ;;
            "guest: at $phase")
                [[ -n $until ]] || until=$((${EPOCHREALTIME/./} / 1000 + delay_ms))
                ;;
            "cuts: dax "*) take_word dax "${line#cuts: dax }" ;;
            "cuts: devdax "*) take_word devdax "${line#cuts: devdax }" ;;
        esac
        if [[ $phase == acks || $phase == files ]] && ((here >= acks)); then
            outcome=cut && break
        fi
    done
    cut_power
    [[ $phase != end && $outcome == cut ]] || [[ $phase == end && $outcome == passed ]] || {
        tail -n 60 "$1"
        fail "the guest: $outcome"
    }
}

# cuts COUNT SEED: that many cuts, and a boot that verifies what the last one left. Where the moments
# came before anything was acknowledged, as those of few cuts do on a slow machine, there is one cut
# more, after a number of acknowledgements.
cuts() {
    local count=$1 seed=$2 turn started=$SECONDS before what
    local phase delay_ms acks mode formatted_anew here last=0
    local -A known=([dax]=none [devdax]=none)
    local acknowledged=0 verified=0
    for ((turn = 0; !last; turn++)); do
        plan $((seed + turn))
        if ((turn == count)) && [[ ${known[*]} != *:* ]]; then
            count=$((count + 1))
            phase=acks
            formatted_anew=''
        fi
        [[ -z $formatted_anew ]] || ((turn == count)) || known[$formatted_anew]=none
        ((turn < count)) || last=1 phase=end
        before=$SECONDS
        start ,nvdimm-persistence=mem-ctrl "nearside.boot=cuts nearside.turn=$((turn + 1)) \
nearside.mode=$mode nearside.last=$last \
nearside.dax=${known[dax]} nearside.devdax=${known[devdax]}"
        follow_cut "$scratch/cut-$turn.log"
        what="$phase + $delay_ms ms"
        [[ $phase != acks && $phase != files ]] || what="$acks $phase"
        [[ $phase != end ]] || what="the end"
        echo "guest: seed $((seed + turn)): $what, $((SECONDS - before)) s;" \
            "dax ${known[dax]}, devdax ${known[devdax]}"
    done
    echo "cuts=$count acknowledged=$acknowledged verified=$verified" \
        "seconds=$((SECONDS - started)) next=$((seed + count))"
    ((acknowledged > 0 && verified > 0)) || fail "nothing was acknowledged, or verified"
    passed=$((passed + count))
}
