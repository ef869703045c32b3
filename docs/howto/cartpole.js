// CartPole, as in rlcpu/envs/tasks/classic_control/cartpole.py, played by cartpole_policy.js.
const cartpole = {
  reset: () => Array.from({ length: 4 }, () => 0.1 * Math.random() - 0.05),
  step: ([x, speed, angle, turning], action) => {
    const force = action === 1 ? 10 : -10, sine = Math.sin(angle), cosine = Math.cos(angle);
    const push = (force + 0.05 * turning ** 2 * sine) / 1.1;
    const bend = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - (0.1 * cosine ** 2) / 1.1));
    const pull = push - (0.05 * bend * cosine) / 1.1;
    return [x + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turning, turning + 0.02 * bend];
  },
  isOver: ([x, , angle]) => Math.abs(x) > 2.4 || Math.abs(angle) > (12 * Math.PI) / 180,
};

function playCartpole(place, policy) {
  place.innerHTML =
    '<canvas role="img" aria-label="A cart that balances a pole"></canvas>' +
    '<p style="display: flex; flex-wrap: wrap; gap: 0.5rem">' +
    ["Push left", "Push right", "Pause"]
      .map((name) => `<button class="md-button" style="padding: 0.4em 1em; color: var(--md-typeset-a-color)">${name}</button>`)
      .join("") +
    "</p><p></p>";
  const canvas = place.querySelector("canvas"), [left, right, pause] = place.querySelectorAll("button");
  const line = place.lastElementChild, pen = canvas.getContext("2d");
  let state = cartpole.reset(), steps = 0, best = 0, last = 0, isPaused = false, arrow = 0;

  const push = (turning) => { state[3] += turning; arrow = Math.sign(turning) * 12; };
  const show = () => { pause.textContent = isPaused ? "Play" : "Pause"; };
  left.onclick = () => push(-0.6);
  right.onclick = () => push(0.6);
  pause.onclick = () => { isPaused = !isPaused; show(); };
  addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea")) return;
    if (event.key === "ArrowLeft") push(-0.6);
    if (event.key === "ArrowRight") push(0.6);
  });
  isPaused = matchMedia("(prefers-reduced-motion: reduce)").matches;
  show();

  function draw() {
    const style = getComputedStyle(place), ink = style.getPropertyValue("--md-default-fg-color") || "black";
    const colour = style.getPropertyValue("--md-typeset-a-color") || "blue";
    const ratio = devicePixelRatio || 1, width = place.clientWidth, height = Math.min(width * 0.45, 260);
    if (canvas.width !== Math.round(width * ratio)) {
      canvas.width = width * ratio; canvas.height = height * ratio;
      canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const unit = width / 6, ground = height * 0.8, x = width / 2 + state[0] * unit;
    pen.strokeStyle = pen.fillStyle = ink;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(width / 2 - 2.4 * unit, ground); pen.lineTo(width / 2 + 2.4 * unit, ground);
    pen.stroke();
    pen.fillRect(x - 0.25 * unit, ground - 0.15 * unit, 0.5 * unit, 0.3 * unit);
    pen.strokeStyle = colour;
    pen.lineWidth = Math.max(4, 0.08 * unit);
    pen.lineCap = "round";
    pen.beginPath();
    pen.moveTo(x, ground - 0.15 * unit);
    const tip = [x + Math.sin(state[2]) * 1.4 * unit, ground - 0.15 * unit - Math.cos(state[2]) * 1.4 * unit];
    pen.lineTo(...tip);
    pen.stroke();
    if (arrow) {
      pen.fillStyle = colour;
      pen.font = `${0.5 * unit}px sans-serif`;
      pen.textAlign = arrow > 0 ? "right" : "left";
      pen.fillText(arrow > 0 ? "→" : "←", tip[0] - Math.sign(arrow) * 0.15 * unit, tip[1] + 0.15 * unit);
      arrow -= Math.sign(arrow);
    }
    line.textContent = `${(steps * 0.02).toFixed(1)} s upright, longest ${(best * 0.02).toFixed(1)} s`;
  }

  function run(now) {
    for (last = Math.max(last, now - 100); last + 20 <= now; last += 20) { // 50 steps a second
      if (isPaused) continue;
      state = cartpole.step(state, act(policy, state));
      steps += 1;
      best = Math.max(best, steps);
      if (cartpole.isOver(state)) { state = cartpole.reset(); steps = 0; }
    }
    draw();
    requestAnimationFrame(run);
  }
  requestAnimationFrame(run);
}

if (typeof document !== "undefined") playCartpole(document.getElementById("cartpole"), cartpolePolicy);
