// Shows a game that a policy plays: a picture, buttons that disturb it, and a line on how it goes.
function play(place, game, policy) {
  place.innerHTML =
    `<canvas role="img" aria-label="${game.label}"></canvas>` +
    '<p style="display: flex; flex-wrap: wrap; gap: 0.5rem">' +
    ["Push left", "Push right", "Pause"]
      .map((name) => `<button class="md-button" style="padding: 0.4em 1em; color: var(--md-typeset-a-color)">${name}</button>`)
      .join("") +
    "</p><p></p>";
  const canvas = place.querySelector("canvas"), [left, right, pause] = place.querySelectorAll("button");
  const line = place.lastElementChild, pen = canvas.getContext("2d");
  let state = game.reset(), score = 0, best = 0, last = 0, isPaused = false, arrow = 0;

  const push = (side) => { state = game.push(state, side); arrow = side * 12; };
  const show = () => { pause.textContent = isPaused ? "Play" : "Pause"; };
  left.onclick = () => push(-1);
  right.onclick = () => push(1);
  pause.onclick = () => { isPaused = !isPaused; show(); };
  addEventListener("keydown", (event) => {
    if (!place.matches(":hover, :focus-within")) return;
    if (event.key === "ArrowLeft") push(-1);
    if (event.key === "ArrowRight") push(1);
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
    pen.strokeStyle = pen.fillStyle = ink;
    pen.lineWidth = 1;
    const [x, y, size] = game.draw(pen, state, width, height, colour); // where an arrow may stand
    if (arrow) {
      pen.fillStyle = colour;
      pen.font = `${size}px sans-serif`;
      pen.textAlign = arrow > 0 ? "right" : "left";
      pen.fillText(arrow > 0 ? "→" : "←", x - Math.sign(arrow) * 0.3 * size, y + 0.3 * size);
      arrow -= Math.sign(arrow);
    }
    line.textContent = game.says(score, best);
  }

  function run(now) {
    for (last = Math.max(last, now - 100); last + game.milliseconds <= now; last += game.milliseconds) {
      if (isPaused) continue;
      const [after, reward, isOver] = game.step(state, act(policy, game.observe(state)));
      score += reward;
      best = Math.max(best, score);
      state = isOver ? game.reset() : after;
      if (isOver) score = 0;
    }
    draw();
    requestAnimationFrame(run);
  }
  requestAnimationFrame(run);
}
