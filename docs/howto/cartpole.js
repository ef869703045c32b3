// CartPole, as in rlcpu/envs/tasks/classic_control/cartpole.py, played by cartpole_policy.js.
const cartpole = {
  label: "A cart that balances a pole",
  milliseconds: 20,
  reset: () => Array.from({ length: 4 }, () => 0.1 * Math.random() - 0.05),
  step: ([x, speed, angle, turning], action) => {
    const force = action === 1 ? 10 : -10, sine = Math.sin(angle), cosine = Math.cos(angle);
    const push = (force + 0.05 * turning ** 2 * sine) / 1.1;
    const bend = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - (0.1 * cosine ** 2) / 1.1));
    const pull = push - (0.05 * bend * cosine) / 1.1;
    const after = [x + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turning, turning + 0.02 * bend];
    return [after, 1, Math.abs(after[0]) > 2.4 || Math.abs(after[2]) > (12 * Math.PI) / 180];
  },
  observe: (state) => state,
  push: ([x, speed, angle, turning], side) => [x, speed, angle, turning + 0.6 * side],
  says: (score, best) => `${(score * 0.02).toFixed(1)} s upright, longest ${(best * 0.02).toFixed(1)} s`,
  draw: (pen, [place, , angle], width, height, colour) => {
    const unit = width / 6, ground = height * 0.8, x = width / 2 + place * unit;
    pen.beginPath();
    pen.moveTo(width / 2 - 2.4 * unit, ground); pen.lineTo(width / 2 + 2.4 * unit, ground);
    pen.stroke();
    pen.fillRect(x - 0.25 * unit, ground - 0.15 * unit, 0.5 * unit, 0.3 * unit);
    pen.strokeStyle = colour;
    pen.lineWidth = Math.max(4, 0.08 * unit);
    pen.lineCap = "round";
    pen.beginPath();
    pen.moveTo(x, ground - 0.15 * unit);
    const tip = [x + Math.sin(angle) * 1.4 * unit, ground - 0.15 * unit - Math.cos(angle) * 1.4 * unit];
    pen.lineTo(...tip);
    pen.stroke();
    return [...tip, 0.5 * unit];
  },
};

if (typeof document !== "undefined") play(document.getElementById("cartpole"), cartpole, cartpolePolicy);
